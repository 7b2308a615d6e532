"""When each part of an iteration ended: marks on the CPU's clock or, for a GPU, in its stream.

An interval belongs to the part that ends it. On a GPU marks are events that are read once they have happened: no call
waits for them.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any


class Part(IntEnum):
    """The use of the time up to a mark."""

    OUTSIDE = 0
    """Outside of the iteration's work: evaluation, checkpoints, the script's own code between two iterations."""
    DATA = 1
    """Waiting for the next batch."""
    COMPUTE = 2
    """Up to a gradient that is ready for the sum; and behind the sum: the optimizer, up to ``step``."""
    SENDING = 3
    """This rank's own time to hand its gradients over."""
    SUM = 4
    """From the last gradient handed over to the end of the sum."""
    EXCHANGE = 5
    """From ``step`` until the words of all ranks were read, before the next iteration."""


@dataclass(slots=True)
class Norms:
    """Squared norms of one iteration's gradients, of this rank's and of the mean over all.

    They are read once the marks of the iteration have happened: on a GPU nothing waits for them.
    """

    share: int
    """Samples of this rank."""
    batch: int
    number: Callable[[Any], Callable[[], float]]
    """The clock's."""
    is_spoilt: bool = False
    """Gradients are accumulated by the script itself."""
    _left: list[Callable[[], float]] = field(default_factory=list)
    _own: list[Callable[[], float]] = field(default_factory=list)
    _means: list[Callable[[], float]] = field(default_factory=list)
    _backwards: int = 0

    def add_left(self, is_left: Any) -> None:
        """Whether gradients had something in them before: then the script accumulates by itself."""
        self._left.append(self.number(is_left))

    def add_own(self, norm: Any, *, is_first: bool) -> None:
        """One bucket of gradients, before its sum; ``is_first``: of a backward."""
        self._own.append(self.number(norm))
        self._backwards += is_first

    def add_mean(self, norm: Any) -> None:
        """The same bucket behind its sum."""
        self._means.append(self.number(norm))

    @property
    def own(self) -> float:
        """Of this rank's mean gradient: the buckets have its part of the mean, ``share / batch`` of it."""
        return sum(read() ** 2 for read in self._own) * (self.batch / self.share) ** 2

    @property
    def mean(self) -> float:
        """Of the mean over all ranks."""
        return sum(read() ** 2 for read in self._means)

    @property
    def are_whole(self) -> bool:
        """Whether they are of all gradients of one backward."""
        is_one = self._backwards == 1 and len(self._own) == len(self._means)
        return is_one and not self.is_spoilt and not any(read() for read in self._left)


Stamp = Any
"""A float of ``perf_counter``, or a CUDA event."""


@dataclass(slots=True)
class Measured:
    """One iteration as this rank measured it: its samples, and how long each part was."""

    iteration: int
    samples: int
    position: int
    marks: list[tuple[Part, Stamp]] = field(default_factory=list)
    blocked_s: float = 0.0
    """Part of what counts as compute by the marks that was spent in collectives."""
    link_s: float = 0.0
    """Time that this rank's links need for the iteration's traffic."""
    losses: list[Callable[[], float]] = field(default_factory=list)
    logged: dict[str, Callable[[], float]] = field(default_factory=dict)
    norms: Norms | None = None
    """None: not measured in this iteration."""

    def add(self, part: Part, stamp: Stamp) -> None:
        """The time since the previous mark was spent on ``part``."""
        self.marks.append((part, stamp))


class CpuClock:
    """Marks by ``perf_counter``."""

    def stamp(self) -> Stamp:
        """Now."""
        return time.perf_counter()

    def happened(self, stamp: Stamp) -> bool:
        """Whether its time is known."""
        return True

    def seconds(self, begin: Stamp, end: Stamp) -> float:
        """Seconds from one mark to the other."""
        return float(end - begin)

    def number(self, value: Any) -> Callable[[], float]:
        """A tensor's value, to be read once the marks after it have happened."""
        if not hasattr(value, "detach"):
            return lambda: float(value)
        number = float(value.detach())
        return lambda: number


class CudaClock:
    """Marks by events in the current stream of ``device``, by default torch's own; losses are copied beside them."""

    def __init__(self, device: Any = None) -> None:
        import torch

        self._torch, self._device = torch, device
        self._free: deque[Any] = deque()

    def stamp(self) -> Stamp:
        """A mark at the device's next queued work."""
        event = self._torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def happened(self, stamp: Stamp) -> bool:
        """Whether the device has reached the mark."""
        return bool(stamp.query())

    def seconds(self, begin: Stamp, end: Stamp) -> float:
        """Seconds from one mark to the other; both have happened."""
        return max(0.0, float(begin.elapsed_time(end)) / 1e3)

    def number(self, value: Any) -> Callable[[], float]:
        """A tensor's value: copied to the host without waiting, valid once the next mark has happened."""
        if not hasattr(value, "detach"):
            return lambda: float(value)
        value = value.detach()
        if not value.is_cuda:
            number = float(value)
            return lambda: number
        host = self._torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        host.copy_(value, non_blocking=True)
        return lambda: float(host)


Clock = CpuClock | CudaClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The parts of one iteration in seconds."""

    outside: float
    data: float
    compute: float
    sending: float
    sum: float
    exchange: float


def durations(clock: Clock, measured: Measured) -> Durations | None:
    """How long each part was; None: the device has not finished the iteration."""
    if measured.marks and not clock.happened(measured.marks[-1][1]):
        return None
    totals = [0.0] * len(Part)
    for (_, begin), (part, end) in pairwise(measured.marks):
        totals[part] += max(0.0, clock.seconds(begin, end))
    blocked = min(measured.blocked_s, totals[Part.COMPUTE])
    return Durations(
        outside=totals[Part.OUTSIDE],
        data=totals[Part.DATA],
        compute=totals[Part.COMPUTE] - blocked,
        sending=totals[Part.SENDING],
        sum=totals[Part.SUM] + blocked,
        exchange=totals[Part.EXCHANGE],
    )
