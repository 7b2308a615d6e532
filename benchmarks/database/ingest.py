"""Write rate of ingest for batches of a real log, compared with a bare executemany of the raw events."""

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Final

from django.db import transaction

from benchmarks.database.empty_database import empty_database, measured_job
from controlplane.core.events import WorkerMessageReceived
from controlplane.jobs.rows import insert_rows
from controlplane.protocol.messages import IterationReport
from controlplane.runtime import log
from controlplane.runtime.batches import Read, copied_so_far, write_batch
from controlplane.runtime.ingest import BATCH
from controlplane.telemetry.models import RawEvent
from controlplane.telemetry.projections import EVENT_FIELDS

WORKERS: Final = 64
ROUNDS: Final = 5
BATCHES: Final = 25
"""Batches of each kind per round."""
BAR: Final = 0.15
"""Target: lowest ratio of ingest's reports/s to the bare statement's. Ingest also decodes, and updates columns, sums
and cursors.
"""
LONGEST_MS: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run; each report's raw event is a row, and so is each batch of reports."""

    database: str
    rows: int
    ingest_rows_per_s: float
    bare_rows_per_s: float
    transaction_p50_ms: float
    transaction_p95_ms: float

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        ratio = self.ingest_rows_per_s / self.bare_rows_per_s
        failures = [f"{ratio:.2f} of a bare executemany's rows/s, at least {BAR} expected"] if ratio < BAR else []
        if self.transaction_p50_ms > LONGEST_MS:
            failures.append(f"transactions take {self.transaction_p50_ms:.0f} ms, at most {LONGEST_MS:.0f} expected")
        return {**asdict(self), "ratio": ratio, "failures": failures}


def run(_: Namespace) -> dict[str, Any]:
    """Measure both ways."""
    return measure().document()


def measure() -> Result:
    """Measure both in turn, so that noise of the machine affects both."""
    ingest_s: list[float] = []
    bare_s: list[float] = []
    with empty_database() as kind:
        job, twin = measured_job(WORKERS).pk, measured_job(WORKERS).pk
        copied = copied_so_far(job)
        for number in range(ROUNDS):
            batches = list(_batches(number * BATCHES, BATCHES))
            for entries in batches:
                began = time.perf_counter()
                write_batch(job, copied, [], entries)
                ingest_s.append(time.perf_counter() - began)
            for entries in batches:
                events = _rows(twin, entries)
                began = time.perf_counter()
                with transaction.atomic():
                    insert_rows(RawEvent, EVENT_FIELDS, events)
                bare_s.append(time.perf_counter() - began)
        rows = RawEvent.objects.count()
    return Result(
        database=kind,
        rows=rows,
        ingest_rows_per_s=BATCH / median(ingest_s),
        bare_rows_per_s=BATCH / median(bare_s),
        transaction_p50_ms=median(ingest_s) * 1000,
        transaction_p95_ms=quantiles(ingest_s, n=20)[-1] * 1000,
    )


def table(document: dict[str, Any]) -> str:
    """The result as a table."""
    lines = [
        f"{document['rows']:,} rows into {document['database']}, {BATCH} reports per transaction",
        f"bare executemany: {document['bare_rows_per_s']:10,.0f} rows/s",
        f"ingest:           {document['ingest_rows_per_s']:10,.0f} rows/s,"
        f" {document['ratio']:.2f} of it (target: at least {BAR})",
        f"transactions of ingest: p50 {document['transaction_p50_ms']:.1f} ms (target: at most {LONGEST_MS:.0f}),"
        f" p95 {document['transaction_p95_ms']:.1f} ms",
    ]
    return "\n".join(lines)


def _batches(first: int, count: int) -> Iterator[Read]:
    for batch in range(first, first + count):
        yield [_entry(batch * BATCH + place) for place in range(BATCH)]


def _entry(place: int) -> tuple[bytes, dict[bytes, bytes]]:
    iteration, rank = divmod(place, WORKERS)
    report = IterationReport(
        number=iteration + 1,
        generation=1,
        iteration=iteration,
        samples=64,
        position=place * 64,
        loss=0.5,
        compute_s=0.1,
        push_s=0.02,
        pull_s=0.01,
        waiting_s=0.3,
        coordination_s=0.001,
    )
    event = WorkerMessageReceived(rank=rank, instance=f"w{rank}.0.1", message=report)
    return f"{1_772_000_000_000 + place}-0".encode(), {b"e": log.encode_event(event)}


def _rows(job: int, entries: Read) -> list[Sequence[Any]]:
    return [(job, 0, stream_id.decode(), "report", fields[b"e"]) for stream_id, fields in entries]
