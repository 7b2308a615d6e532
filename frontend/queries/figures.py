"""Columns for figures. Merged in the database so that no figure ever fetches more than ``MAX_ROWS`` rows."""

from datetime import datetime
from typing import Any

import numpy as np
from django.db.models import Avg, Count, F, FloatField, Max, Min, QuerySet, Sum, Value
from numpy.typing import NDArray

from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec
from controlplane.telemetry.models import Evaluation, Report
from frontend.figures.rows import Convergence, Traces, View, WorkerTrace

MAX_ROWS = 20_000
MAX_WORKERS = 16
"""Workers in one figure; of a larger roster, the slowest and the fastest half each."""

RECENT = 20
"""Iterations over which the present is measured."""


def traces(job: Job, view: View) -> Traces:
    """The workers' reports, iterations merged until they fit."""
    roster = parse_spec(job.spec).workers
    ranks = view.ranks or _ranks(job, roster)
    reports = Report.objects.filter(job=job, rank__in=ranks)
    width = _width(reports, len(ranks))
    columns = _columns(_merged_traces(reports, width), 10)
    return Traces(
        workers=tuple(_worker(job, rank, columns[:, columns[0] == rank]) for rank in ranks if rank in columns[0]),
        roster=roster,
        width=width,
        reports=int(columns[8].sum()),
    )


def convergence(job: Job, view: View) -> Convergence:
    """Training loss of all workers per iteration (merged until it fits) and every score."""
    reports = Report.objects.filter(job=job)
    loss = _columns(_merged_loss(reports, _width(reports, 1)), 5)
    scores = _columns(_newest(Evaluation.objects.filter(job=job)), 4)
    samples = np.cumsum(loss[3])
    return Convergence(
        iteration=loss[0].astype(np.int64),
        elapsed_s=_elapsed(job, loss[1]),
        samples=samples.astype(np.int64),
        loss=loss[2],
        reports=int(loss[4].sum()),
        scored_iteration=scores[0].astype(np.int64),
        scored_elapsed_s=scores[1],
        scored_samples=_samples_at(scores[0], loss[0], samples),
        scored_loss=scores[2],
        scored_accuracy=scores[3],
        target=parse_spec(job.spec).stop.accuracy,
    )


def _ranks(job: Job, roster: int) -> tuple[int, ...]:
    """All workers, or the slowest and fastest by time per sample over the last iterations."""
    if roster <= MAX_WORKERS:
        return tuple(range(roster))
    recent = Report.objects.filter(job=job, iteration__gt=job.iteration - RECENT, samples__gt=0)
    busy = Sum(F("compute_s") + F("push_s") + F("pull_s")) / Sum("samples", output_field=FloatField())
    order = list(recent.values("rank").annotate(pace=busy).order_by("pace", "rank").values_list("rank", flat=True))
    half = MAX_WORKERS // 2
    return tuple(sorted({*order[:half], *order[-half:]})) or tuple(range(MAX_WORKERS))


def _width(reports: QuerySet[Report], workers: int) -> int:
    """How many iterations to merge so that ``workers`` rows for each stretch stay within the bound."""
    newest = reports.aggregate(newest=Max("iteration"))["newest"] or 0
    return max(1, -(-(newest + 1) * workers // MAX_ROWS))


def _merged_traces(reports: QuerySet[Report], width: int) -> Any:
    return (
        reports.values("rank", stretch=F("iteration") / Value(width))
        .annotate(
            first=Min("iteration"),
            ended=Max("at"),
            lowest=Min("samples"),
            highest=Max("samples"),
            compute=Avg("compute_s"),
            communication=Avg(F("push_s") + F("pull_s")),
            waiting=Avg("waiting_s"),
            count=Count("id"),
            coordination=Avg("coordination_s"),
        )
        .order_by("rank", "stretch")
        .values_list(
            "rank",
            "first",
            "ended",
            "lowest",
            "highest",
            "compute",
            "communication",
            "waiting",
            "count",
            "coordination",
        )[: 2 * MAX_ROWS]
    )


def _merged_loss(reports: QuerySet[Report], width: int) -> Any:
    weighted = Sum(F("loss") * F("samples"), output_field=FloatField()) / Sum("samples", output_field=FloatField())
    return (
        reports.filter(samples__gt=0)
        .values(stretch=F("iteration") / Value(width))
        .annotate(first=Min("iteration"), ended=Max("at"), mean=weighted, taken=Sum("samples"), count=Count("id"))
        .order_by("stretch")
        .values_list("first", "ended", "mean", "taken", "count")[: 2 * MAX_ROWS]
    )


def _newest(scores: QuerySet[Evaluation]) -> list[Any]:
    columns = ("iteration", "elapsed_s", "loss", "accuracy")
    return list(scores.order_by("-iteration").values_list(*columns)[:MAX_ROWS])[::-1]


def _columns(rows: Any, count: int) -> NDArray[np.float64]:
    """Rows as columns of floats; times become POSIX seconds, null becomes NaN, which is drawn as a gap."""
    table = [[_number(value) for value in row] for row in rows]
    columns: NDArray[np.float64] = np.array(table, np.float64).reshape(-1, count).T
    return columns


def _number(value: Any) -> float:
    if value is None:
        return float("nan")
    return float(value.timestamp()) if isinstance(value, datetime) else float(value)


def _worker(job: Job, rank: int, columns: NDArray[np.float64]) -> WorkerTrace:
    return WorkerTrace(
        rank=rank,
        label=f"w{rank}",
        iteration=columns[1].astype(np.int64),
        elapsed_s=_elapsed(job, columns[2]),
        lowest=columns[3].astype(np.int64),
        highest=columns[4].astype(np.int64),
        compute_s=columns[5],
        communication_s=columns[6],
        waiting_s=columns[7],
        coordination_s=columns[9],
    )


def _elapsed(job: Job, at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds since the job began to run; a report may reach the log a moment before the state does."""
    started = job.started_at or job.created_at
    elapsed: NDArray[np.float64] = np.maximum(at - started.timestamp(), 0.0).round(3)
    return elapsed


def _samples_at(iterations: NDArray[Any], known: NDArray[Any], samples: NDArray[Any]) -> NDArray[np.int64]:
    """Samples processed when a version was scored: version k is what iterations below k made."""
    before = np.searchsorted(known, iterations, side="left")
    return np.concatenate([[0], samples]).astype(np.int64)[before]
