"""A worker's measurements other than times, taken when it reports an iteration."""

from typing import Any

from controlplane.protocol.measurements import OF_WORKERS, fitting
from workers.accelerator import Gauge
from workers.emulation import Pace
from workers.resources import Machine


class Readings:
    """Measurements of the machine or device that the worker computes on, or of the emulated machine."""

    def __init__(self, gauge: Gauge, pace: Pace, machine: Machine | None = None) -> None:
        self._gauge, self._pace, self._machine = gauge, pace, machine or Machine()

    def take(self, **more: float | None) -> dict[str, Any]:
        """Fields of ``IterationReport``, including values measured elsewhere; unmeasured ones are absent."""
        load = self._pace.load(self._gauge.load(self._machine.load()))
        joules = None if self._pace.emulates else self._gauge.joules()
        found = {"cpu": load.cpu, "memory": load.memory, "joules": joules, **self._gauge.numbers(), **more}
        return fitting(OF_WORKERS, found)
