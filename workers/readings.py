"""What a worker measures besides the times of an iteration, when it reports one."""

from typing import Any

from controlplane.protocol.measurements import OF_WORKERS, fitting
from workers.accelerator import Gauge
from workers.emulation import Pace
from workers.resources import Machine


class Readings:
    """Of the machine or the device that the worker computes on, or of the machine that it emulates."""

    def __init__(self, gauge: Gauge, pace: Pace, machine: Machine | None = None) -> None:
        self._gauge, self._pace, self._machine = gauge, pace, machine or Machine()

    def take(self) -> dict[str, Any]:
        """Fields of ``IterationReport``; what is not measured here is left out."""
        load = self._pace.load(self._gauge.load(self._machine.load()))
        return fitting(OF_WORKERS, {"cpu": load.cpu, "memory": load.memory, **self._gauge.numbers()})
