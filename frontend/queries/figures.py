"""Reads columns for figures from rollups and column chunks, merged to a bounded number of windows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from django.db.models import QuerySet
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.telemetry.history import (
    Windows,
    quotient,
)
from controlplane.telemetry.metrics import BUSY, ITERATION, PROCESSING
from controlplane.telemetry.models import Evaluation
from frontend.figures.rows import Convergence, Traces, View, WorkerTrace
from frontend.queries.history import History

MAX_WINDOWS = 20_000
"""Maximum number of windows over all workers of a figure."""

MAX_SUMMED = 100_000
"""Maximum number of windows over all workers if they are summed to one line."""

MAX_SCORES = 20_000

TRACED = ("at_ms", "samples", *ITERATION)
LEARNED = ("at_ms", "samples", "scored_samples", "scored_loss")

MAX_WORKERS = 16
"""Maximum number of workers of a figure: of more workers, half are the slowest and half the fastest."""

RECENT = 20
"""Iterations over which current values are measured."""


def traces(job: Job, view: View) -> Traces:
    """The workers' reports, with iterations merged into windows."""
    roster, ranks = stored_spec(job).workers, ranks_of(job, view)
    width = History(job).width(MAX_WINDOWS, len(ranks))
    windows = History(job).windows(TRACED, width, ranks)
    return Traces(
        workers=tuple(_worker(job, rank, windows[rank]) for rank in ranks if rank in windows),
        roster=roster,
        width=width,
        batch=stored_spec(job).global_batch,
        reports=sum(int(each.of("at_ms", "count").sum()) for each in windows.values()),
    )


def convergence(job: Job, view: View) -> Convergence:
    """Training loss of all workers per window of iterations, and every score."""
    history = History(job)
    loss = _over_workers(list(history.windows(LEARNED, history.width(MAX_SUMMED)).values()))
    scores = _columns(_newest(Evaluation.objects.filter(job=job)), 4)
    samples, updates = np.cumsum(loss.samples), np.cumsum(loss.updates)
    return Convergence(
        iteration=loss.first,
        elapsed_s=elapsed(job, loss.ended_ms),
        samples=samples.astype(np.int64),
        updates=updates.astype(np.int64),
        batch=loss.batch,
        loss=loss.mean,
        reports=loss.reports,
        scored_iteration=scores[0].astype(np.int64),
        scored_elapsed_s=scores[1],
        scored_samples=_before(scores[0], loss.first, samples),
        scored_updates=_before(scores[0], loss.first, updates),
        scored_loss=scores[2],
        scored_accuracy=scores[3],
        target=stored_spec(job).stop.accuracy,
        training_samples=job.training_samples,
    )


class _Loss(NamedTuple):
    """Sums over all workers per window."""

    first: NDArray[np.int64]
    ended_ms: NDArray[np.float64]
    samples: NDArray[np.float64]
    updates: NDArray[np.float64]
    batch: NDArray[np.float64]
    """The sum of the workers' mean batch sizes."""
    mean: NDArray[np.float64]

    @property
    def reports(self) -> int:
        """Total number of reports."""
        return int(self.updates.sum())


def _over_workers(windows: Sequence[Windows]) -> _Loss:
    """Losses weighted by samples; windows without samples are omitted."""
    if not windows:
        none = np.empty(0)
        return _Loss(np.empty(0, np.int64), none, none, none, none, none)
    first, place = np.unique(np.concatenate([each.first for each in windows]), return_inverse=True)

    def over(read: Callable[[Windows], NDArray[np.float64]]) -> NDArray[np.float64]:
        values = np.concatenate([read(each) for each in windows])
        return np.bincount(place, weights=values, minlength=len(first)).astype(np.float64, copy=False)

    ended_ms = np.full(len(first), -np.inf)
    np.maximum.at(ended_ms, place, np.concatenate([each.of("at_ms", "max") for each in windows]))

    def summed(name: str, statistic: str = "sum") -> NDArray[np.float64]:
        return over(lambda each: each.of(name, statistic))

    samples, updates = summed("samples"), summed("samples", "count")
    batch = over(lambda each: np.nan_to_num(each.mean("samples")))
    mean = quotient(summed("scored_loss"), summed("scored_samples"))
    kept = samples > 0
    return _Loss(first[kept], ended_ms[kept], samples[kept], updates[kept], batch[kept], mean[kept])


def ranks_of(job: Job, view: View) -> tuple[int, ...]:
    """The workers of a figure: the requested ones, or as many as it can show."""
    roster = stored_spec(job).workers
    return view.ranks or (slowest(job, roster, view.top) if view.top else slowest_and_fastest(job, roster))


def slowest_and_fastest(job: Job, roster: int) -> tuple[int, ...]:
    """All workers, or the slowest and fastest by time per sample over the last iterations."""
    if roster <= MAX_WORKERS:
        return tuple(range(roster))
    order = _by_pace(job)
    half = MAX_WORKERS // 2
    return tuple(sorted({*order[:half], *order[-half:]})) or tuple(range(MAX_WORKERS))


def slowest(job: Job, roster: int, count: int) -> tuple[int, ...]:
    """The ``count`` workers with the longest time per sample."""
    return tuple(sorted(_by_pace(job)[-count:])) or tuple(range(min(count, roster)))


def _by_pace(job: Job) -> list[int]:
    """Ranks by time per sample over the last iterations, fastest first."""
    found = History(job).latest(("samples", *BUSY), RECENT - 1)
    paces = {
        rank: sum(each[name].sum() for name in BUSY) / each["samples"].sum()
        for rank, each in found.items()
        if each["samples"].sum()
    }
    return sorted(paces, key=lambda rank: (paces[rank], rank))


def _newest(scores: QuerySet[Evaluation]) -> list[Any]:
    columns = ("iteration", "elapsed_s", "loss", "accuracy")
    return list(scores.order_by("-iteration").values_list(*columns)[:MAX_SCORES])[::-1]


def _columns(rows: Any, count: int) -> NDArray[np.float64]:
    """Rows as float columns; null becomes NaN, which is drawn as a gap."""
    columns: NDArray[np.float64] = np.array(rows, np.float64).reshape(-1, count).T
    return columns


def _worker(job: Job, rank: int, windows: Windows) -> WorkerTrace:
    return WorkerTrace(
        rank=rank,
        label=f"w{rank}",
        iteration=windows.first,
        elapsed_s=elapsed(job, windows.of("at_ms", "max")),
        samples=windows.mean("samples"),
        lowest=windows.of("samples", "min").astype(np.int64),
        highest=windows.of("samples", "max").astype(np.int64),
        compute_s=windows.mean(*PROCESSING),
        data_s=np.nan_to_num(windows.mean("data_s")) if windows.of("data_s", "count").any() else None,
        communication_s=windows.mean("push_s", "pull_s"),
        waiting_s=windows.mean("waiting_s"),
        coordination_s=windows.mean("coordination_s"),
    )


def elapsed(job: Job, at_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds since the job started to run; at least 0, as a report may be logged just before the state change."""
    started = job.started_at or job.created_at
    seconds: NDArray[np.float64] = np.maximum(at_ms / 1000 - started.timestamp(), 0.0).round(3)
    return seconds


def _before(iterations: NDArray[Any], known: NDArray[Any], sums: NDArray[Any]) -> NDArray[np.int64]:
    """Progress at each scored version: version k is the result of the iterations below k."""
    before = np.searchsorted(known, iterations, side="left")
    return np.concatenate([[0], sums]).astype(np.int64)[before]
