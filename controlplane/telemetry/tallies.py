"""Counters of running jobs for metrics, updated as reports and decisions are written, so that reading them is cheap.

Ingest writes them in the transaction that moves its cursor, so they count each report once and never decrease, even
after a restart.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

import msgspec
import numpy as np
from django.db import connection, models

from controlplane.jobs.rows import update_rows
from controlplane.protocol.measurements import OF_WORKERS
from controlplane.telemetry.batches import ReportColumns
from controlplane.telemetry.columns import Column
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Tally, WorkerSums

ITERATION_S: Final = "iteration"
DECISION_S: Final = "decision"

OF_JOB: Final = -1
"""The rank under which counts of the whole job are stored."""

WITHOUT_BOUND: Final = 2**31 - 1

BOUNDS_MS: Final = {
    ITERATION_S: (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, WITHOUT_BOUND),
    DECISION_S: (2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, WITHOUT_BOUND),
}
"""Upper bounds of the buckets of each histogram, in milliseconds."""

NEWEST: Final = tuple(each.name for each in OF_WORKERS if each.name not in (*ITERATION, "samples"))
"""Measurements with the last value kept; the others are summed."""


def tally_reports(job_id: int, reports: ReportColumns) -> None:
    """Add new reports to the sums and iteration times of their workers."""
    if not len(reports):
        return
    ranks, of_rank = np.unique(reports.columns["rank"], return_inverse=True)
    times = [np.where(np.isnan(column), 0.0, column) for column in map(reports.column, ITERATION)]
    _add_durations(job_id, ITERATION_S, reports.columns["rank"], np.sum(times, axis=0))
    added = [
        np.bincount(of_rank).tolist(),
        np.bincount(of_rank, reports.columns["samples"]).astype(np.int64).tolist(),
        *(np.bincount(of_rank, column).tolist() for column in times),
    ]
    last = np.zeros(len(ranks), np.int64)
    last[of_rank] = np.arange(len(of_rank))  # the last of several reports of a worker is kept
    update_rows(
        _upsert(WorkerSums, ("job_id", "rank"), ("reports", "samples", *ITERATION), ("instance", "at_ms", "newest")),
        [
            (job_id, rank, *sums, *newest)
            for rank, sums, newest in zip(ranks.tolist(), zip(*added, strict=True), _last(reports, last), strict=True)
        ],
    )


def tally_decisions(job_id: int, latencies_s: Iterable[float]) -> None:
    """Count how long log entries waited until the resulting orders were published."""
    seconds = np.fromiter(latencies_s, np.float64)
    _add_durations(job_id, DECISION_S, np.full(len(seconds), OF_JOB), seconds)


def _add_durations(job_id: int, name: str, ranks: Column, seconds: Column) -> None:
    if not len(seconds):
        return
    bounds = BOUNDS_MS[name]
    bucket = np.minimum(np.searchsorted(bounds, seconds * 1000), len(bounds) - 1)
    places, of_place = np.unique((ranks - OF_JOB) * len(bounds) + bucket, return_inverse=True)
    counts, sums = np.bincount(of_place), np.bincount(of_place, seconds)
    update_rows(
        _upsert(Tally, ("job_id", "name", "rank", "upto_ms"), ("count", "seconds")),
        [
            (job_id, name, place // len(bounds) + OF_JOB, bounds[place % len(bounds)], count, total)
            for place, count, total in zip(places.tolist(), counts.tolist(), sums.tolist(), strict=True)
        ],
    )


def _last(reports: ReportColumns, places: Column) -> list[tuple[str, int, str]]:
    """Sender, time and newest values of these reports."""
    chosen = reports.where(places)
    senders = [reports.instances[place] for place in chosen.columns["instance"].tolist()]
    columns = {name: chosen.columns[name].tolist() for name in NEWEST if name in chosen.columns}
    newest = [
        msgspec.json.encode({name: values[place] for name, values in columns.items() if values[place] == values[place]})
        for place in range(len(places))
    ]
    return [
        (sender, at_ms, known.decode())
        for sender, at_ms, known in zip(senders, chosen.columns["at_ms"].tolist(), newest, strict=True)
    ]


@cache
def _upsert(
    model: type[models.Model], key: tuple[str, ...], added: tuple[str, ...], replaced: tuple[str, ...] = ()
) -> str:
    """The statement that inserts a row, or adds to the one with that key."""
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    columns = [quote(name) for name in (*key, *added, *replaced)]
    changes = [f"{quote(name)} = {table}.{quote(name)} + excluded.{quote(name)}" for name in added]
    changes += [f"{quote(name)} = excluded.{quote(name)}" for name in replaced]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
        f" ON CONFLICT ({', '.join(map(quote, key))}) DO UPDATE SET {', '.join(changes)}"
    )
