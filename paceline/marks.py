"""Measures when each part of an iteration ended: by the CPU's clock or, on a GPU, by events in its stream.

An interval belongs to the part whose mark ends it. On a GPU marks are events that are read after they have occurred: no
call waits for them.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any


class Part(IntEnum):
    """The part of an iteration that a mark ends."""

    OUTSIDE = 0
    """Outside the loop's work: evaluation, checkpoints, the script's own code between two iterations."""
    DATA = 1
    """Waiting for the next batch."""
    COMPUTE = 2
    """Until the gradients are ready for the sum; after the sum: the optimizer, until ``step``."""
    SUM = 3
    """From the last gradient passed to the sum until its end."""
    EXCHANGE = 4
    """From ``step`` until the rows of all ranks are read, before the next iteration."""


@dataclass(slots=True)
class Norms:
    """Norms of one iteration's gradients: of this rank's mean, and of the mean over all samples.

    They are read once the marks of the iteration have occurred: no call waits for a GPU.
    """

    share: int
    """Number of samples of this rank."""
    batch: int
    number: Callable[[Any], Callable[[], float]]
    """Reads a tensor's value; provided by the clock."""
    own: list[Any] = field(default_factory=list)
    """Of each of the rank's gradients that has arrived in this backward."""
    is_spoilt: bool = False
    """The script accumulates gradients itself."""
    took_s: float = 0.0
    """Time that the script's thread spent on them."""
    _left: list[Callable[[], float]] = field(default_factory=list)
    _whole: list[tuple[Callable[[], float], Callable[[], float]]] = field(default_factory=list)

    def begin_backward(self, left: Any) -> None:
        """A backward begins; ``left``: the norm of a gradient that was there before, as a tensor, or None."""
        self.own.clear()
        if left is not None:
            self._left.append(self.number(left))

    def add(self, own: Any, mean: Any) -> None:
        """The norms of all gradients of a backward, after their sum."""
        self._whole.append((self.number(own), self.number(mean)))

    def squares(self) -> tuple[float, float] | None:
        """Both norms, squared; None: they are not those of exactly one backward."""
        if len(self._whole) != 1 or self.is_spoilt or any(read() for read in self._left):
            return None
        own, mean = self._whole[0]
        return own() ** 2, mean() ** 2


Stamp = Any
"""A float of ``perf_counter``, or a CUDA event."""


@dataclass(slots=True)
class Measured:
    """One iteration as measured by this rank: its samples, and the duration of each part."""

    iteration: int
    samples: int
    position: int
    marks: list[tuple[Part, Stamp]] = field(default_factory=list)
    blocked_s: float = 0.0
    """The part of the measured compute time that was spent in collectives."""
    link_s: float = 0.0
    """Time that this rank's links need for the iteration's traffic."""
    losses: list[Callable[[], float]] = field(default_factory=list)
    logged: dict[str, Callable[[], float]] = field(default_factory=dict)
    norms: Norms | None = None
    """None: not measured in this iteration."""
    shares: Sequence[int] = ()
    """The agreed shares of all ranks."""

    def add(self, part: Part, stamp: Stamp) -> None:
        """The time since the previous mark was spent on ``part``."""
        self.marks.append((part, stamp))


class CpuClock:
    """Marks with ``perf_counter``."""

    def stamp(self) -> Stamp:
        """Now."""
        return time.perf_counter()

    def happened(self, stamp: Stamp) -> bool:
        """Whether the time of the mark is known."""
        return True

    def seconds(self, begin: Stamp, end: Stamp) -> float:
        """Seconds from one mark to the other."""
        return float(end - begin)

    def number(self, value: Any) -> Callable[[], float]:
        """A tensor's value, to be read once the marks after it have occurred."""
        if not hasattr(value, "detach"):
            return lambda: float(value)
        number = float(value.detach())
        return lambda: number


class CudaClock:
    """Marks as events in the current stream of ``device``, by default torch's current one;
    losses are copied alongside.
    """

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
        """Seconds from one mark to the other; both have occurred."""
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
    sum: float
    exchange: float


def durations(clock: Clock, measured: Measured) -> Durations | None:
    """Durations of all parts; None: the device has not finished the iteration."""
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
        sum=totals[Part.SUM] + blocked,
        exchange=totals[Part.EXCHANGE],
    )
