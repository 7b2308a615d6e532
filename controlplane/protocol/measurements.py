"""Declares each measurement once, at the field of the message that contains it.

``Annotated[Seconds, number("data loading", "s", chart="Data loading")]`` declares a new number of a worker or machine.
It only has to be measured (``workers/readings.py``, and ``paceline/load.py`` for attached ranks): its wire field and
range, columns, rollups, series in REST, column in the export and chart follow from the declaration. A field that is
``UNSET`` by default may be absent, because an older release or that machine does not measure it. Absent is not zero.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.inspect import FloatType, IntType, Metadata, StructType, type_info

from controlplane.protocol.base import Count32, Finite, Fraction, Seconds, Value

MAX_BYTES: Final = 2.0**60
Bytes = Annotated[float, Meta(ge=0.0, le=MAX_BYTES)]
"""An amount of memory or data; with the unit ``B/s``, a rate."""

Celsius = Annotated[float, Meta(ge=-100.0, le=1_000.0)]
Samples = Annotated[float, Meta(ge=0.0, le=1e12)]
Watts = Annotated[float, Meta(ge=0.0, le=1e6)]
Joules = Annotated[float, Meta(ge=0.0, le=1e12)]

Fold = Literal["mean", "max"]
"""How charts merge several iterations or samples. Rollups keep count, sum, minimum and maximum."""

DECLARED: Final = "measurement"


def number(title: str, unit: str = "", *, chart: str = "", fold: Fold = "mean") -> Meta:
    """Declare the field to be a measurement.

    Args:
        title: its name in the API and charts.
        unit: ``s``, ``B``, ``B/s``, ``W``, ``J``, ``°C``, ``samples``; none: a count or a fraction.
        chart: the title of its default chart; measurements of a machine may share one. Empty: it has none.
        fold: how charts merge several iterations.
    """
    return Meta(extra={DECLARED: {"title": title, "unit": unit, "chart": chart, "fold": fold}})


class WorkerNumbers(Value, frozen=True, kw_only=True):
    """What one worker measured over one iteration.

    ``data_s + compute_s + push_s + pull_s + waiting_s + coordination_s`` is the iteration time: from the
    acknowledgement of the previous iteration's last push to that of this one. ``pull_s`` excludes the time for which a
    server delayed the reply; that is waiting.
    """

    samples: Annotated[Count32, number("share: samples of the iteration", "samples")]
    loss: Annotated[Finite, number("mean training loss over the samples")]
    """Mean over the samples; 0 if it is ``spoilt``."""
    data_s: Annotated[Seconds, number("time waiting for the next batch", "s", chart="Data loading")] | UnsetType = UNSET
    """Absent: not measured separately, and included in ``compute_s``."""
    compute_s: Annotated[Seconds, number("computation", "s")]
    push_s: Annotated[Seconds, number("push", "s")]
    pull_s: Annotated[Seconds, number("pull, less the time it was held", "s")]
    waiting_s: Annotated[Seconds, number("waiting for others", "s")]
    coordination_s: Annotated[Seconds, number("waiting for the control plane", "s")]
    outside_s: (
        Annotated[Seconds, number("time between the iteration before and this one", "s", chart="Outside the loop")]
        | UnsetType
    ) = UNSET
    """Time of an attached job's script between two iterations: evaluation, checkpoints. Part of neither iteration."""
    cpu: Annotated[Fraction, number("CPU use of the machine, 0 to 1")] = 0.0
    memory: Annotated[Fraction, number("memory use of the machine, 0 to 1")] = 0.0
    """CPU and memory use when the report is sent: of the machine, or of the GPU that the worker computes on."""
    gpu_utilization: (
        Annotated[Fraction, number("part of the time in which the GPU was busy", chart="GPU utilization")] | UnsetType
    ) = UNSET
    gpu_memory: (
        Annotated[Bytes, number("memory of its GPU in use by all processes", "B", chart="GPU memory", fold="max")]
        | UnsetType
    ) = UNSET
    """Memory in use by all processes, when the report is sent."""
    gpu_temperature: (
        Annotated[Celsius, number("temperature of its GPU", "°C", chart="GPU temperature", fold="max")] | UnsetType
    ) = UNSET
    gpu_power: Annotated[Watts, number("power that its GPU draws", "W", chart="GPU power")] | UnsetType = UNSET
    joules: Annotated[Joules, number("energy that it used in the iteration", "J", chart="Energy")] | UnsetType = UNSET
    """Of its GPU, or its part of the CPUs' energy by CPU time; absent if neither has a counter."""
    noise_scale: (
        Annotated[Samples, number("gradient-noise scale, smoothed", "samples", chart="Gradient noise")] | UnsetType
    ) = UNSET
    """The number of samples whose mean gradient has as much noise as signal (``protocol/noise.py``)."""

    @property
    def processing_s(self) -> float:
        """Time to load its samples and to compute on them."""
        return self.compute_s if self.data_s is UNSET else self.data_s + self.compute_s

    @property
    def busy_s(self) -> float:
        """Processing and non-overlapping communication: the batch processing time t of LB-BSP, section 4."""
        return self.processing_s + self.push_s + self.pull_s

    @property
    def iteration_s(self) -> float:
        """The whole iteration."""
        return self.processing_s + self.push_s + self.pull_s + self.waiting_s + self.coordination_s


class MachineNumbers(Value, frozen=True, kw_only=True):
    """What an agent measured of its machine since its last heartbeat."""

    cpu: Annotated[Fraction, number("CPU use, 0 to 1")]
    memory: Annotated[Fraction, number("memory use, 0 to 1")]
    disk_read: Annotated[Bytes, number("read", "B/s", chart="Disk")] | UnsetType = UNSET
    disk_write: Annotated[Bytes, number("written", "B/s", chart="Disk")] | UnsetType = UNSET
    network_in: Annotated[Bytes, number("received", "B/s", chart="Network")] | UnsetType = UNSET
    network_out: Annotated[Bytes, number("sent", "B/s", chart="Network")] | UnsetType = UNSET
    cpu_power: Annotated[Watts, number("power that its processors draw", "W", chart="Power")] | UnsetType = UNSET
    """From RAPL, if its counters can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One declared number."""

    name: str
    title: str
    unit: str
    chart: str
    """The title of its default chart; empty: none."""
    fold: Fold
    is_optional: bool
    """Whether a message may lack it."""
    is_integer: bool
    least: float
    most: float

    @property
    def figure(self) -> str:
        """Its default chart's name in URLs."""
        return self.chart.lower().replace(" ", "-")

    def takes(self, value: float) -> bool:
        """Whether the value is within the declared range."""
        return self.least <= value <= self.most


def declared(kind: type[msgspec.Struct]) -> tuple[Measurement, ...]:
    """The measurements among a message's fields, in their order."""
    info = type_info(kind)
    assert isinstance(info, StructType)
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return tuple(
        _measurement(field.name, field.type, is_optional=defaults[field.name] is UNSET)
        for field in info.fields
        if isinstance(field.type, Metadata) and DECLARED in (field.type.extra or {})
    )


def _measurement(name: str, kind: Metadata, *, is_optional: bool) -> Measurement:
    bounds = kind.type
    if not isinstance(bounds, FloatType | IntType) or bounds.ge is None or bounds.le is None:
        raise TypeError(f"measurement {name}: found {bounds}, expected a number with bounds, such as Fraction")
    return Measurement(
        name=name,
        is_optional=is_optional,
        is_integer=isinstance(bounds, IntType),
        least=float(bounds.ge),
        most=float(bounds.le),
        **(kind.extra or {})[DECLARED],
    )


OF_WORKERS: Final = declared(WorkerNumbers)
"""Per worker and iteration."""

OF_MACHINES: Final = declared(MachineNumbers)
"""Per machine and sample."""


def values_of(message: msgspec.Struct, names: Iterable[str]) -> list[float]:
    """These measurements of a message; NaN if absent."""
    found = (getattr(message, name) for name in names)
    return [math.nan if value is UNSET else value for value in found]


def known_of(message: msgspec.Struct, names: Iterable[str]) -> dict[str, float]:
    """Those of these measurements that the message has."""
    return {name: value for name in names if (value := getattr(message, name)) is not UNSET}


def fitting(measurements: Iterable[Measurement], found: Mapping[str, float | None]) -> dict[str, Any]:
    """The valid values of ``found``: an invalid value of a driver is dropped, so that the message is not refused for
    it.
    """
    kept: dict[str, Any] = {}
    for each in measurements:
        value = found.get(each.name)
        if value is not None and each.takes(value):
            kept[each.name] = int(value) if each.is_integer else float(value)
    return kept
