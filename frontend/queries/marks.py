"""Reads the marks of a job's charts: changes by operators and policies, and processes that came or left."""

from typing import Any, Final

import numpy as np

from controlplane.core.states import JobState
from controlplane.jobs.models import Decision, Job
from controlplane.protocol.spec import parse_spec
from frontend.figures.marks import MOST
from frontend.figures.rows import Mark
from frontend.queries.figures import MAX_WINDOWS
from frontend.queries.history import History
from frontend.queries.wording import describe

MARKED: Final = (
    *("change-policies", "adopt-predictor", "move-blocks", "roll-back"),
    *("leave-out", "take-back", "request-slot", "drain-server"),
)
"""Kinds of decisions that are always marked."""

STATES: Final = (JobState.PAUSED, JobState.RUNNING)


def marks(job: Job) -> tuple[Mark, ...]:
    """The latest marks, in order."""
    if job.started_at is None:
        return ()
    rows = Decision.objects.filter(job=job, kind__in=(*MARKED, "move-job", "move-process"), at__gte=job.started_at)
    state, kept = str(JobState.RUNNING), []
    for row in rows.order_by("incarnation", "sequence")[: 20 * MOST]:
        moved = str(row.payload.get("state", "")) if row.kind == "move-job" else state
        if row.kind in MARKED or _comes_or_goes(row.kind, row.payload) or (moved != state and moved in STATES):
            kept.append(row)
        state = moved
    clock = _Clock(job)
    return tuple(
        clock.mark((row.at - job.started_at).total_seconds(), row.iteration, _words(row)) for row in kept[-MOST:]
    )


def _comes_or_goes(kind: str, payload: dict[str, Any]) -> bool:
    """Whether a worker or server was lost, or a new instance of one started."""
    if kind != "move-process":
        return False
    again = not str(payload.get("instance", "")).endswith(".1")
    return payload.get("state") == "lost" or (payload.get("state") == "ready" and again)


def _words(row: Decision) -> str:
    return f"{describe(row.kind, row.payload)}: {row.reason}" if row.reason else describe(row.kind, row.payload)


class _Clock:
    """The end of each iteration, by the reports of one worker."""

    def __init__(self, job: Job) -> None:
        spec = parse_spec(job.spec)
        history = History(job)
        found = history.windows(("at_ms",), history.width(MAX_WINDOWS))
        longest = max(found.values(), key=lambda each: len(each.first), default=None)
        started = job.started_at.timestamp() if job.started_at else 0.0
        none = np.zeros(1)
        self._iteration = longest.first.astype(np.float64) if longest is not None and len(longest.first) else none
        ended = longest.of("at_ms", "max") / 1000 - started if longest is not None and len(longest.first) else none
        self._elapsed = np.maximum.accumulate(ended)
        self._batch, self._workers = spec.global_batch, spec.workers
        self._epoch = job.training_samples

    def mark(self, elapsed_s: float, iteration: int | None, words: str) -> Mark:
        """Its position; within an iteration, at that fraction of it."""
        at = float(iteration) if iteration is not None else float(np.interp(elapsed_s, self._elapsed, self._iteration))
        elapsed_s = max(0.0, round(elapsed_s, 3))
        samples = round(at * self._batch)
        return Mark(
            elapsed_s=elapsed_s,
            iteration=round(at, 2),
            samples=samples,
            updates=round(at * self._workers),
            epochs=round(samples / self._epoch, 4) if self._epoch else None,
            words=words,
        )
