"""Counters of running jobs for metrics: added to as reports and decisions are written, so that reading them is cheap.

Ingest writes them in the transaction that moves its cursor: they count each report once, and never decrease, in any
process and after any restart.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.db import connection, models

from controlplane.jobs.rows import update_rows
from controlplane.protocol.measurements import OF_WORKERS, known_of, values_of
from controlplane.protocol.messages import IterationReport
from controlplane.telemetry.metrics import ITERATION
from controlplane.telemetry.models import Tally, WorkerSums

ITERATION_S: Final = "iteration"
DECISION_S: Final = "decision"

OF_JOB: Final = -1
"""The rank under which counts of a job as a whole are stored."""

WITHOUT_BOUND: Final = 2**31 - 1

BOUNDS_MS: Final = {
    ITERATION_S: (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, WITHOUT_BOUND),
    DECISION_S: (2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, WITHOUT_BOUND),
}
"""Upper bounds of the buckets of each histogram, in milliseconds."""

NEWEST: Final = tuple(each.name for each in OF_WORKERS if each.name not in (*ITERATION, "samples"))
"""Measurements of which the last value is kept; the others are summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedReport:
    """A report that is new, when it came, and from which process."""

    rank: int
    instance: str
    at_ms: int
    report: IterationReport


def tally_reports(job_id: int, received: Sequence[ReceivedReport]) -> None:
    """Add reports to the sums and iteration times of their workers."""
    if not received:
        return
    _add_durations(job_id, ITERATION_S, ((each.rank, each.report.iteration_s) for each in received))
    by_rank: dict[int, list[ReceivedReport]] = defaultdict(list)
    for each in received:
        by_rank[each.rank].append(each)
    _upsert(
        WorkerSums,
        key=("job_id", "rank"),
        added=("reports", "samples", *ITERATION),
        replaced=("instance", "at_ms", "newest"),
        rows=[(job_id, rank, *_sums(of_rank), *_last(of_rank)) for rank, of_rank in sorted(by_rank.items())],
    )


def tally_decisions(job_id: int, latencies_s: Iterable[float]) -> None:
    """Count how long entries of the log waited until orders that follow from them were published."""
    _add_durations(job_id, DECISION_S, ((OF_JOB, seconds) for seconds in latencies_s))


def _add_durations(job_id: int, name: str, durations: Iterable[tuple[int, float]]) -> None:
    bounds = BOUNDS_MS[name]
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for rank, seconds in durations:
        found[rank, bounds[bisect_left(bounds, seconds * 1000, hi=len(bounds) - 1)]].append(seconds)
    _upsert(
        Tally,
        key=("job_id", "name", "rank", "upto_ms"),
        added=("count", "seconds"),
        rows=[(job_id, name, *place, len(each), sum(each)) for place, each in sorted(found.items())],
    )


def _sums(of_rank: Sequence[ReceivedReport]) -> list[float]:
    reports = [each.report for each in of_rank]
    columns = zip(*(values_of(report, ITERATION) for report in reports), strict=True)
    known = [sum(value for value in column if value == value) for column in columns]  # NaN: not measured separately
    return [len(reports), sum(report.samples for report in reports), *known]


def _last(of_rank: Sequence[ReceivedReport]) -> tuple[str, int, str]:
    last = of_rank[-1]
    newest = {name: value for name, value in known_of(last.report, NEWEST).items() if value == value}
    return last.instance, last.at_ms, msgspec.json.encode(newest).decode()


def _upsert(
    model: type[models.Model],
    *,
    key: Sequence[str],
    added: Sequence[str],
    rows: Sequence[Sequence[Any]],
    replaced: Sequence[str] = (),
) -> None:
    quote = connection.ops.quote_name
    table = quote(model._meta.db_table)
    columns = [quote(name) for name in (*key, *added, *replaced)]
    changes = [f"{quote(name)} = {table}.{quote(name)} + excluded.{quote(name)}" for name in added]
    changes += [f"{quote(name)} = excluded.{quote(name)}" for name in replaced]
    update_rows(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
        f" ON CONFLICT ({', '.join(map(quote, key))}) DO UPDATE SET {', '.join(changes)}",
        rows,
    )
