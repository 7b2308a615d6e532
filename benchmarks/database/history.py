"""Time to read one metric of all workers of a long job: from chunks, as pages do, and from batches."""

import gc
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.database.empty_database import empty_database, measured_job
from controlplane.telemetry.batches import ReportColumns, encoded_batch
from controlplane.telemetry.columns import summed
from controlplane.telemetry.folding import fold
from controlplane.telemetry.metrics import METRICS
from controlplane.telemetry.models import ReportBatch
from controlplane.telemetry.selectors import series
from controlplane.telemetry.stored_reports import reports_of

METRIC: Final = "iteration_s"
WORKERS: Final = 64
ITERATIONS: Final = 10_000
ROUNDS: Final = 3
TOGETHER: Final = 6
"""Iterations per batch: with 64 workers about as many reports as ingest copies together."""
BEGAN: Final = datetime(2026, 3, 2, tzinfo=UTC)
BAR: Final = 0.6
"""Target: highest ratio of the time from chunks to the time from batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one run."""

    database: str
    workers: int
    iterations: int
    chunks_s: float
    """One metric of all workers from chunks, thinned to 500 points each, encoded."""
    chunks_json_bytes: int
    rows_s: float
    """The same from all batches, not thinned, encoded."""
    rows_json_bytes: int
    folded_rows_per_s: float
    longest_piece_ms: float

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        ratio = self.chunks_s / self.rows_s
        failures = [f"chunks take {ratio:.2f} of the batches' time, at most {BAR} expected"] if ratio > BAR else []
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
    """Write and fold the reports of a job of that size; returns the duration of each step of folding in seconds."""
    for first in range(0, iterations, TOGETHER):
        reports = _reports(workers, first, min(iterations, first + TOGETHER))
        ReportBatch.objects.create(job_id=job, reports=len(reports), data=encoded_batch(reports))
    return list(_timed(fold(job)))


def table(document: dict[str, Any]) -> str:
    """The result as a table."""
    what = f"{METRIC} of {document['workers']} workers x {document['iterations']:,} iterations ({document['database']})"
    lines = [
        f"{what:60}{'time':>10}{'JSON':>12}",
        *(
            f"{title:60}{document[f'{key}_s'] * 1000:7.1f} ms{document[f'{key}_json_bytes'] / 1e6:9.2f} MB"
            for title, key in (("from chunks, 500 points each", "chunks"), ("from batches, every point", "rows"))
        ),
        f"chunks take {document['ratio']:.3f} of the batches' time (target: at most {BAR})",
        f"folding: {document['folded_rows_per_s']:,.0f} rows/s, longest piece {document['longest_piece_ms']:.0f} ms",
    ]
    return "\n".join(lines)


def _reports(workers: int, first: int, last: int) -> ReportColumns:
    place = np.arange((last - first) * workers)
    iteration, rank = first + place // workers, place % workers
    times = {"push_s": 0.004, "pull_s": 0.003, "waiting_s": 0.02, "coordination_s": 0.001, "data_s": 0.0}
    return ReportColumns(
        instances=[f"w{rank}.0.1" for rank in range(workers)],
        columns={
            "rank": rank,
            "instance": rank,
            "iteration": iteration,
            "position": iteration * 64,
            **{
                name: np.full(len(place), value)
                for name, value in {"generation": 1, "samples": 64, "overran": 0}.items()
            },
            **{name: np.full(len(place), value) for name, value in (times | {"cpu": 0.5, "memory": 0.25}).items()},
            "at_ms": np.full(len(place), int(BEGAN.timestamp() * 1000)),
            "loss": 2.3 / (1 + iteration),
            "compute_s": 0.1 + (rank * 31 + iteration * 17) % 101 / 1000,
        },
    )


def _raw(job: int) -> dict[int, list[tuple[int, float]]]:
    """Read without chunks: every report, grouped by worker."""
    columns = METRICS[METRIC].all_columns
    found: dict[int, list[tuple[int, float]]] = {}
    for batch in reports_of(job):
        whole = summed([batch.column(name) for name in columns])
        for rank, iteration, value in zip(
            batch.columns["rank"].tolist(), batch.columns["iteration"].tolist(), whole.tolist(), strict=True
        ):
            found.setdefault(rank, []).append((iteration, value))
    return found


def _timed(steps: Iterator[int]) -> Iterator[float]:
    while True:
        began = time.perf_counter()
        if next(steps, None) is None:
            return
        yield time.perf_counter() - began


def _best(read: Callable[[], bytes]) -> tuple[float, bytes]:
    """Median time of several reads, and the data read."""
    times, body = [], b""
    for _ in range(ROUNDS):
        gc.collect()
        began = time.perf_counter()
        body = read()
        times.append(time.perf_counter() - began)
    return median(times), body
