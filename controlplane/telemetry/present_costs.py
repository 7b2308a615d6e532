"""The current cost of flagged workers, since balanced shares may have removed the cost that a finding states."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.core.cache import cache
from django.db import DatabaseError

from controlplane.jobs.flag_notes import notes_on
from controlplane.jobs.models import Flag, Job
from controlplane.policies.stragglers.explanations import is_quiet
from controlplane.telemetry.history import Span, read_columns
from controlplane.telemetry.metrics import BUSY

ITERATIONS: Final = 10
"""Number of latest iterations over which busy times are averaged."""

MOST_ROWS: Final = 2_000
"""The most rows that are read; for a very large roster this means fewer iterations."""

KEPT_S: Final = 5.0
"""How many seconds a job's busy times are cached: lists, tiles, machines and alerts all read them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentCost:
    """Mean busy seconds of the busiest worker, and of the busiest of the others."""

    iteration_s: float
    without_s: float

    @property
    def evidence(self) -> dict[str, float]:
        """In the form of a finding's evidence."""
        cost_s = max(0.0, self.iteration_s - self.without_s)
        return {"iteration_s": self.iteration_s, "without_s": self.without_s, "cost_s": cost_s}


def present_costs(flags: Iterable[Flag]) -> dict[int, PresentCost]:
    """By primary key: the present cost of open findings about workers, if it and other workers are measured."""
    by_job: dict[int, list[Flag]] = defaultdict(list)
    for flag in flags:
        if flag.closed_at is None and flag.subject == "worker" and "without_s" in flag.evidence:
            by_job[flag.job_id].append(flag)
    found: dict[int, PresentCost] = {}
    for job in Job.objects.filter(pk__in=by_job).only("iteration", "spec", "created_at"):
        try:
            busy = _busy(job)
        except DatabaseError:
            raise
        except Exception:  # only this job's columns: the findings of other jobs are still judged
            logger.exception(
                "measurements of job %d cannot be read: the present cost of its findings is unknown", job.pk
            )
            continue
        for flag in by_job[job.pk]:
            others = [seconds for rank, seconds in busy.items() if rank != flag.rank]
            if flag.rank in busy and others:
                without_s = max(others)
                found[flag.pk] = PresentCost(iteration_s=max(busy[flag.rank], without_s), without_s=without_s)
    return found


def pressing(flags: Iterable[Flag], now: datetime) -> list[Flag]:
    """Findings that need attention: without a note, and with a cost at present.

    If the present cost is not measured, the cost when the finding was made counts.
    """
    rows = list(flags)
    noted = notes_on(rows, now)
    left = [flag for flag in rows if flag.pk not in noted]
    costs = present_costs(left)
    return [flag for flag in left if not is_quiet(present_evidence(flag, costs))]


def present_evidence(flag: Flag, costs: Mapping[int, PresentCost]) -> dict[str, Any]:
    """The finding's evidence, with its present cost if known."""
    evidence: dict[str, Any] = dict(flag.evidence)
    return evidence | costs[flag.pk].evidence if flag.pk in costs else evidence


def _busy(job: Job) -> dict[int, float]:
    """By rank: the mean busy seconds of the latest iterations; cached for a few seconds."""
    key = f"busy-{job.pk}-{job.created_at.timestamp()}-{job.iteration // ITERATIONS}"
    kept: dict[int, float] | None = cache.get(key)
    if kept is not None:
        return kept
    workers = job.spec.get("workers") if isinstance(job.spec, dict) else None
    window = max(1, min(ITERATIONS, MOST_ROWS // workers)) if isinstance(workers, int) and workers > 0 else ITERATIONS
    found = read_columns(job.pk, BUSY, Span(first=max(0, job.iteration - window)))
    busy = {rank: sum(float(block[name].mean()) for name in BUSY) for rank, block in found.items()}
    cache.set(key, busy, KEPT_S)
    return busy
