"""Reads of history: series of measurements, thinned for display without losing their extremes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from django.db.models import QuerySet
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from controlplane.telemetry.columns import Block, Column
from controlplane.telemetry.history import Span, read_measured
from controlplane.telemetry.metrics import EVALUATION_METRICS, METRICS, Metric
from controlplane.telemetry.models import Evaluation, LogLine, LogTally, RawEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one worker (``rank``), or of the job as a whole, against iterations; without missing values."""

    metric: str
    unit: str
    rank: int | None
    raw_points: int
    """Number of values before thinning."""
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

    An iteration that was repeated in a later generation counts once, with its last values.
    """
    names = list(metrics)
    columns = {column for name in names if name in METRICS for column in METRICS[name].all_columns}
    workers = read_measured(job_id, columns, Span(ranks=list(ranks), first=since)) if columns else {}
    found: list[Series] = []
    for name in names:
        if name in METRICS:
            found += [_worker_series(name, rank, block, points) for rank, block in workers.items()]
        else:
            found.append(_evaluation_series(job_id, name, since, points))
    return found


def thin(x: NDArray[np.int64], y: NDArray[np.float64], points: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At most ``points`` points of a line with the same shape: extremes per bucket first, then largest triangles."""
    if len(x) <= points:
        return x, y
    kept = MinMaxLTTBDownsampler().downsample(x, y, n_out=points)  # type: ignore[no-untyped-call]
    return x[kept], y[kept]


def job_events(job_id: int) -> QuerySet[RawEvent]:
    """The stored part of the job's log, the latest first."""
    return RawEvent.objects.filter(job_id=job_id).order_by("-id")


LEVELS: Final = ("debug", "output", "info", "warning", "error")
"""Levels of log lines, the least important first."""


def job_lines(
    job_id: int, *, level: str = LEVELS[0], process: tuple[str, int] | None = None, text: str = ""
) -> QuerySet[LogLine]:
    """Output of the job's processes, of that level or a more important one, the latest first."""
    lines = LogLine.objects.filter(job_id=job_id).order_by("-id")
    if level != LEVELS[0]:
        lines = lines.filter(level__in=LEVELS[LEVELS.index(level) :])
    if process is not None:
        lines = lines.filter(role=process[0], index=process[1])
    return lines.filter(text__icontains=text) if text else lines


def dropped_lines(job_id: int) -> int:
    """How many of the job's oldest log lines were dropped."""
    return LogTally.objects.filter(job=job_id).values_list("dropped", flat=True).first() or 0


def process_of(name: str) -> tuple[str, int] | None:
    """Role and index of ``w0`` or ``s1``; None for anything else."""
    role = {"w": "worker", "s": "server"}.get(name[:1])
    return (role, int(name[1:])) if role and name[1:].isdecimal() and len(name) < 8 else None


def job_evaluations(job_id: int) -> QuerySet[Evaluation]:
    """Scores of the held-out split, in order of iterations."""
    return Evaluation.objects.filter(job_id=job_id).order_by("iteration")


def _worker_series(name: str, rank: int, block: Block, points: int) -> Series:
    metric = METRICS[name]
    return _series(name, metric, rank, block["iteration"], [block[column] for column in metric.all_columns], points)


def _evaluation_series(job_id: int, name: str, since: int, points: int) -> Series:
    metric = EVALUATION_METRICS[name]
    rows = job_evaluations(job_id).filter(iteration__gte=since).values_list("iteration", *metric.all_columns)
    table = np.array(list(rows), dtype=np.float64).reshape(-1, 1 + len(metric.all_columns))
    return _series(name, metric, None, table[:, 0].astype(np.int64), list(table[:, 1:].T), points)


def _series(
    name: str, metric: Metric, rank: int | None, x: NDArray[np.int64], columns: Sequence[Column], points: int
) -> Series:
    """A series from the metric's columns, in order of iteration."""
    y = metric.values([column.astype(np.float64) for column in columns])
    exists = np.isfinite(y)
    x, y = np.ascontiguousarray(x[exists]), np.ascontiguousarray(y[exists])
    thin_x, thin_y = thin(x, y, points)
    return Series(
        metric=name, unit=metric.unit, rank=rank, raw_points=len(x), iterations=thin_x.tolist(), values=thin_y.tolist()
    )
