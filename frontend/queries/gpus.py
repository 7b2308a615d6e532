"""Reads recent utilization, memory, power and temperature of the GPUs of a job's workers."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from controlplane.jobs.models import Job
from controlplane.telemetry.columns import Column
from controlplane.telemetry.stored_reports import known_measurements
from frontend.queries.history import History
from frontend.queries.lanes import machines

MEASURED: Final = ("gpu_utilization", "gpu_memory", "gpu_power", "gpu_temperature")
RECENT: Final = 10
HOT: Final = 85.0
"""Degrees Celsius at which most data center GPUs throttle."""

IDLE: Final = 0.5
"""Below this utilization a GPU is reported as mostly idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLine:
    """The GPU of one worker, means over the last iterations; None: not measured."""

    rank: int
    machine: str
    utilization: float | None
    memory: float | None
    power: float | None
    temperature: float | None

    @property
    def notice(self) -> str:
        """A hint for the operator; empty if there is none."""
        if self.temperature is not None and self.temperature >= HOT:
            return "hot: may throttle"
        return "idle most of the time" if self.utilization is not None and self.utilization < IDLE else ""


def gpus(job: Job) -> list[GpuLine]:
    """By rank; empty if no worker reports a GPU."""
    known = [name for name in MEASURED if name in known_measurements(job.pk)]
    if not known:
        return []
    where = machines(job)
    found = []
    for rank, block in sorted(History(job).latest(known, RECENT).items()):
        values = {name.removeprefix("gpu_"): _mean(block[name]) if name in known else None for name in MEASURED}
        if any(value is not None for value in values.values()):
            found.append(GpuLine(rank=rank, machine=where.get(rank, ""), **values))
    return found


def _mean(column: Column) -> float | None:
    values = np.asarray(column, np.float64)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None
