"""How fast a long job is read: one metric of all workers, from chunks as pages do it and from raw rows, in one run."""

import gc
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

import msgspec
from django.db import transaction

from benchmarks.database.empty_database import empty_database, measured_job
from controlplane.jobs.rows import insert_rows
from controlplane.telemetry.folding import fold
from controlplane.telemetry.metrics import METRICS
from controlplane.telemetry.models import Report
from controlplane.telemetry.projections import REPORT_FIELDS
from controlplane.telemetry.selectors import series

METRIC: Final = "iteration_s"
WORKERS: Final = 64
ITERATIONS: Final = 10_000
ROUNDS: Final = 3
BEGAN: Final = datetime(2026, 3, 2, tzinfo=UTC)
BAR: Final = 0.2
"""The chunks' time by the rows' at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run measured."""

    database: str
    workers: int
    iterations: int
    chunks_s: float
    """One metric of all workers from chunks, thinned to 500 points each, encoded."""
    chunks_json_bytes: int
    rows_s: float
    """The same from raw rows, not thinned, encoded."""
    rows_json_bytes: int
    folded_rows_per_s: float
    longest_piece_ms: float

    def document(self) -> dict[str, Any]:
        """For scripts."""
        ratio = self.chunks_s / self.rows_s
        failures = [f"chunks take {ratio:.2f} of raw rows' time, at most {BAR} expected"] if ratio > BAR else []
        return {**asdict(self), "ratio": ratio, "failures": failures}


def measure(*, workers: int, iterations: int) -> Result:
    """Write a job of that size, fold it, and read it both ways."""
    with empty_database() as kind:
        job = measured_job(workers).pk
        pauses = write_reports(job, workers, iterations)
        folding_s = sum(pauses)
        chunks_s, chunks = _best(lambda: msgspec.json.encode(series(job_id=job, metrics=[METRIC])))
        rows_s, rows = _best(lambda: msgspec.json.encode(_raw(job)))
    return Result(
        database=kind,
        workers=workers,
        iterations=iterations,
        chunks_s=chunks_s,
        chunks_json_bytes=len(chunks),
        rows_s=rows_s,
        rows_json_bytes=len(rows),
        folded_rows_per_s=workers * iterations / folding_s,
        longest_piece_ms=max(pauses) * 1000,
    )


def run(options: Namespace) -> dict[str, Any]:
    """Measure a job of the chosen size."""
    return measure(workers=options.workers or WORKERS, iterations=options.iterations or ITERATIONS).document()


def write_reports(job: int, workers: int, iterations: int) -> list[float]:
    """Write and fold the reports of a job of that size; how long each piece of the folding took, in seconds."""
    for first in range(0, iterations, 200):
        with transaction.atomic():
            insert_rows(Report, REPORT_FIELDS, list(_rows(job, workers, first, min(iterations, first + 200))))
    return list(_timed(fold(job)))


def table(document: dict[str, Any]) -> str:
    """The figures, for people."""
    what = f"{METRIC} of {document['workers']} workers x {document['iterations']:,} iterations ({document['database']})"
    lines = [
        f"{what:60}{'time':>10}{'JSON':>12}",
        *(
            f"{title:60}{document[f'{key}_s'] * 1000:7.1f} ms{document[f'{key}_json_bytes'] / 1e6:9.2f} MB"
            for title, key in (("from chunks, 500 points each", "chunks"), ("from raw rows, every point", "rows"))
        ),
        f"chunks take {document['ratio']:.3f} of the rows' time (bar: at most {BAR})",
        f"folding: {document['folded_rows_per_s']:,.0f} rows/s, longest piece {document['longest_piece_ms']:.0f} ms",
    ]
    return "\n".join(lines)


def _rows(job: int, workers: int, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    for iteration in range(first, last):
        for rank in range(workers):
            compute_s = 0.1 + (rank * 31 + iteration * 17) % 101 / 1000
            yield (
                *(job, rank, f"w{rank}.0.1", 1, iteration, BEGAN, iteration * 64, False),
                *(64, 2.3 / (1 + iteration), 0.0, compute_s, 0.004, 0.003, 0.02, 0.001, 0.5, 0.25, "{}"),
            )


def _raw(job: int) -> dict[int, list[tuple[int, float]]]:
    """Without chunks: every row, grouped by worker."""
    columns = METRICS[METRIC].all_columns
    found: dict[int, list[tuple[int, float]]] = {}
    rows = Report.objects.filter(job_id=job).order_by("rank", "iteration", "generation", "id")
    for rank, iteration, *parts in rows.values_list("rank", "iteration", *columns).iterator(10_000):
        found.setdefault(rank, []).append((iteration, sum(part or 0.0 for part in parts)))
    return found


def _timed(steps: Iterator[int]) -> Iterator[float]:
    while True:
        began = time.perf_counter()
        if next(steps, None) is None:
            return
        yield time.perf_counter() - began


def _best(read: Callable[[], bytes]) -> tuple[float, bytes]:
    """Median time of several reads, and what was read."""
    times, body = [], b""
    for _ in range(ROUNDS):
        gc.collect()
        began = time.perf_counter()
        body = read()
        times.append(time.perf_counter() - began)
    return median(times), body
