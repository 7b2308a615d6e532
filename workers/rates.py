"""Disk, network and power rates of a machine, from differences of its counters."""

import time
from collections.abc import Callable

import psutil

from controlplane.protocol.meters import Rapl
from workers.energy import rapl_of

Counts = dict[str, float]


class Rates:
    """Rates since the last call.

    Args:
        read: the rising counters by measurement; those that the machine does not have are absent.
    """

    def __init__(self, read: Callable[[], Counts] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        rapl = rapl_of()
        self._read, self._clock = read or (lambda: machine_counts() | _energy(rapl)), clock
        self._at_s, self._counts = clock(), self._read()

    def numbers(self) -> dict[str, float]:
        """Rates per second; no value for a new counter, or one that was reset (an interface went down)."""
        before_s, before = self._at_s, self._counts
        self._at_s, self._counts = self._clock(), self._read()
        took_s = self._at_s - before_s
        if took_s <= 0.0:
            return {}
        risen = {name: count - before[name] for name, count in self._counts.items() if name in before}
        return {name: bytes_ / took_s for name, bytes_ in risen.items() if bytes_ >= 0}


def machine_counts() -> Counts:
    """Bytes of all disks, and of all network interfaces except loopback, if the system reports them."""
    return _disk() | _network()


def _energy(rapl: Rapl) -> Counts:
    """Energy in joules; its rate is in watts."""
    used = rapl.joules()
    return {} if used is None else {"cpu_power": used}


def _disk() -> Counts:
    try:
        counters = psutil.disk_io_counters()  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError, NotImplementedError):
        return {}
    return {"disk_read": counters.read_bytes, "disk_write": counters.write_bytes} if counters else {}


def _network() -> Counts:
    try:
        found = psutil.net_io_counters(pernic=True)  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError):
        return {}
    there = [counters for name, counters in found.items() if not name.startswith("lo")]
    if not there:
        return {}
    return {
        "network_in": sum(counters.bytes_recv for counters in there),
        "network_out": sum(counters.bytes_sent for counters in there),
    }
