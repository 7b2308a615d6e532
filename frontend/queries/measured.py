"""Reads the data of the default charts of measurements, and which measurements a job has."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controlplane.fleet.models import Agent, AgentSample
from controlplane.fleet.samples import OWN_COLUMNS
from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.protocol.measurements import OF_MACHINES, OF_WORKERS
from controlplane.telemetry.history import Windows
from controlplane.telemetry.stored_reports import known_measurements
from frontend.figures.measured import groups
from frontend.figures.measured_rows import Measured, MeasuredWorker, Samples
from frontend.figures.rows import View
from frontend.queries.figures import MAX_WINDOWS, elapsed, ranks_of
from frontend.queries.history import History

CHARTED: Final = tuple(each for each in OF_WORKERS if each.chart)

SAMPLES: Final = 8_640
"""One day of a machine, a sample every 10 s."""


def measured(job: Job, view: View) -> Measured:
    """The workers' measurements that have a chart, with iterations merged into windows."""
    ranks = ranks_of(job, view)
    width = History(job).width(MAX_WINDOWS, len(ranks))
    windows = History(job).windows(("at_ms", *(each.name for each in CHARTED)), width, ranks)
    spec = stored_spec(job)
    return Measured(
        workers=tuple(_worker(job, rank, windows[rank]) for rank in ranks if rank in windows),
        roster=spec.workers,
        width=width,
        batch=spec.global_batch,
        reports=sum(int(each.of("at_ms", "count").sum()) for each in windows.values()),
    )


def charts_of(job: Job) -> tuple[str, ...]:
    """The default charts for which a job has values; all of them before the first report."""
    charts = groups(OF_WORKERS)
    known = known_measurements(job.pk)
    return tuple(name for name, group in charts.items() if not known or any(each.name in known for each in group))


def samples(agent: Agent) -> Samples:
    """The last day of a machine."""
    rows = AgentSample.objects.filter(agent=agent).order_by("-at").values_list("at", *OWN_COLUMNS, "others")[:SAMPLES]
    found = list(rows)[::-1]
    sampled: Sequence[dict[str, float]] = [
        dict(zip(OWN_COLUMNS, own, strict=True)) | others for _, *own, others in found
    ]
    return Samples(
        at_ms=np.array([_ms(at) for at, *_ in found], np.int64),
        values={each.name: _column([row.get(each.name) for row in sampled]) for each in OF_MACHINES},
    )


def _worker(job: Job, rank: int, windows: Windows) -> MeasuredWorker:
    return MeasuredWorker(
        rank=rank,
        label=f"w{rank}",
        iteration=windows.first,
        elapsed_s=elapsed(job, windows.of("at_ms", "max")),
        values={
            each.name: windows.mean(each.name) if each.fold == "mean" else windows.of(each.name, "max")
            for each in CHARTED
        },
    )


def _column(values: list[Any]) -> NDArray[np.float64]:
    return np.array(values, np.float64)  # None becomes NaN


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
