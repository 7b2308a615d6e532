"""Reads of history: series of measurements, thinned for the eye without losing their extremes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from django.db.models import QuerySet
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from controlplane.telemetry.metrics import EVALUATION_METRICS, METRICS, Metric
from controlplane.telemetry.models import Evaluation, RawEvent, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one worker (``rank``), or of the job as a whole, against iterations; values that exist only."""

    metric: str
    unit: str
    rank: int | None
    raw_points: int
    """How many there are before thinning."""
    iterations: list[int]
    values: list[float]

    @property
    def thinned(self) -> bool:
        """Whether points were left out."""
        return len(self.iterations) < self.raw_points


def series(
    *, job_id: int, metrics: Iterable[str], ranks: Iterable[int] = (), since: int = 0, points: int = 500
) -> list[Series]:
    """The metrics from iteration ``since`` on, of ``ranks`` or of all workers, at most ``points`` points each.

    An iteration that was redone in a later generation counts once, as it was done last.
    """
    found: list[Series] = []
    for name in metrics:
        if name in METRICS:
            found += _worker_series(job_id, name, list(ranks), since, points)
        else:
            found.append(_evaluation_series(job_id, name, since, points))
    return found


def thin(x: NDArray[np.int64], y: NDArray[np.float64], points: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At most ``points`` of a line that look like all of it: extremes per bucket first, then largest triangles."""
    if len(x) <= points:
        return x, y
    kept = MinMaxLTTBDownsampler().downsample(x, y, n_out=points)  # type: ignore[no-untyped-call]
    return x[kept], y[kept]


def job_events(job_id: int) -> QuerySet[RawEvent]:
    """The job's log as far as it is in the database, the latest first."""
    return RawEvent.objects.filter(job_id=job_id).order_by("-id")


def job_evaluations(job_id: int) -> QuerySet[Evaluation]:
    """Scores of the held-out split, in order of iterations."""
    return Evaluation.objects.filter(job_id=job_id).order_by("iteration")


def _worker_series(job_id: int, name: str, ranks: list[int], since: int, points: int) -> list[Series]:
    metric = METRICS[name]
    rows = Report.objects.filter(job_id=job_id, iteration__gte=since).order_by("rank", "iteration", "generation", "id")
    chosen = rows.filter(rank__in=ranks) if ranks else rows
    table = np.array(list(chosen.values_list("rank", "iteration", *metric.all_columns)), dtype=np.float64)
    if not len(table):
        return []
    borders = np.flatnonzero(np.diff(table[:, 0])) + 1
    return [_series(name, metric, int(part[0, 0]), part[:, 1:], points) for part in np.split(table, borders)]


def _evaluation_series(job_id: int, name: str, since: int, points: int) -> Series:
    metric = EVALUATION_METRICS[name]
    rows = job_evaluations(job_id).filter(iteration__gte=since).values_list("iteration", *metric.all_columns)
    table = np.array(list(rows), dtype=np.float64).reshape(-1, 1 + len(metric.all_columns))
    return _series(name, metric, None, table, points)


def _series(name: str, metric: Metric, rank: int | None, table: NDArray[np.float64], points: int) -> Series:
    """A series from columns (iteration, the metric's...), rows in order of iteration; of equal ones the last counts."""
    last = np.append(np.diff(table[:, 0]) != 0, True)[: len(table)]
    x, y = table[last, 0].astype(np.int64), metric.values(list(table[last, 1:].T))
    exists = np.isfinite(y)
    x, y = np.ascontiguousarray(x[exists]), np.ascontiguousarray(y[exists])
    thin_x, thin_y = thin(x, y, points)
    return Series(
        metric=name, unit=metric.unit, rank=rank, raw_points=len(x), iterations=thin_x.tolist(), values=thin_y.tolist()
    )
