"""Energy meters for workers and attached ranks: NVML's counter of a GPU, or RAPL's of the CPUs.

RAPL counts whole CPUs, for all processes together. A process is charged by its fraction of the CPU time in the same
interval, so the processes of a machine add up to its CPUs' energy. Counters and clocks are arguments: no I/O here.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

MICRO: Final = 1e-6
MILLI: Final = 1e-3


class Zone(NamedTuple):
    """One CPU package, whose counter includes its cores."""

    read_uj: Callable[[], int | None]
    """Microjoules; None: it cannot be read."""
    range_uj: int
    """The value at which the counter wraps around."""


class Rapl:
    """The counters of all processors of a machine."""

    def __init__(self, zones: Sequence[Zone]) -> None:
        self._zones = zones
        self._last = [zone.read_uj() for zone in zones]
        self._total = 0.0

    @property
    def is_there(self) -> bool:
        """Whether there is a counter that can be read."""
        return any(last is not None for last in self._last)

    def joules(self) -> float | None:
        """Joules since this object was created; None: there is no counter."""
        if not self.is_there:
            return None
        for at, zone in enumerate(self._zones):
            now, last = zone.read_uj(), self._last[at]
            if now is None:
                continue
            if last is not None:
                self._total += (now - last if now >= last else max(0, now + zone.range_uj - last)) * MICRO
            self._last[at] = now
        return self._total


class ProcessorMeter:
    """The CPUs' energy that one process used.

    Args:
        rapl: the processors' counters.
        own_s: CPU time of the process.
        all_s: CPU time of all processes.
    """

    def __init__(self, rapl: Rapl, own_s: Callable[[], float], all_s: Callable[[], float]) -> None:
        self._rapl, self._own, self._all = rapl, own_s, all_s
        self._last = (rapl.joules() or 0.0, own_s(), all_s()) if rapl.is_there else (0.0, 0.0, 0.0)

    def joules(self) -> float | None:
        """Since the last call; None: not measured."""
        total = self._rapl.joules()
        if total is None:
            return None
        before, self._last = self._last, (total, self._own(), self._all())
        used, own_s, all_s = (now - then for now, then in zip(self._last, before, strict=True))
        if own_s <= 0.0:
            return 0.0
        # The system's counter of CPU time has a coarse resolution.
        return used * min(1.0, own_s / max(own_s, all_s))


class GpuMeter:
    """A GPU's energy from NVML: its counter, or on GPUs without one its power over time.

    Args:
        library: the module ``pynvml``, initialised.
        handle: of the GPU.
        clock: monotonic, in seconds.
    """

    def __init__(self, library: Any, handle: Any, clock: Callable[[], float]) -> None:
        self._library, self._handle, self._clock = library, handle, clock
        self._at_s, self._last = clock(), self._counted()
        self._watts = self._power() if self._last is None else None

    def joules(self) -> float | None:
        """Joules since the last call; None: neither is supported."""
        before_s, self._at_s = self._at_s, self._clock()
        if self._last is not None:
            before, now = self._last, self._counted()
            if now is None or now < before:  # the driver was replaced
                self._last = now
                return None
            self._last = now
            return now - before
        before_watts, self._watts = self._watts, self._power()
        if before_watts is None or self._watts is None:
            return None
        return (self._at_s - before_s) * (before_watts + self._watts) / 2

    def _counted(self) -> float | None:
        try:
            return float(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * MILLI
        except self._library.NVMLError:
            return None

    def _power(self) -> float | None:
        try:
            return float(self._library.nvmlDeviceGetPowerUsage(self._handle)) * MILLI
        except self._library.NVMLError:
            return None
