"""Virtual time: a heap of future events, ordered by (time, sequence). Nothing here knows what a worker is.

Ties are broken in the order of scheduling, so a run is a function of its inputs alone.
"""

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Act = Callable[..., None]

_NEVER, _push = math.inf, heapq.heappush


class Kernel:
    """The clock and the future. ``now`` is in seconds of virtual time."""

    __slots__ = ("_heap", "_sequence", "_until_s", "halted", "happened", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        """How many events there have been."""
        self._heap: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._sequence = 0
        self._until_s = _NEVER
        self.halted = False
        """Whether nothing happens after the event that is happening now."""

    @property
    def pending(self) -> int:
        """The number of pending events."""
        return len(self._heap)

    def at(self, time_s: float, act: Act, *arguments: Any) -> None:
        """Let ``act(*arguments)`` happen at ``time_s``, after all that was scheduled for then before.

        Raises:
            ValueError: if that is in the past, or no time at all.
        """
        if not self.now <= time_s < _NEVER:
            raise ValueError(f"an event at {time_s} s, but it is {self.now} s: expected a finite time in the future")
        self._sequence += 1
        _push(self._heap, (time_s, self._sequence, act, arguments))

    def reserve(self, times_s: NDArray[np.float64]) -> int:
        """The first of as many consecutive places in the order of scheduling, for events at those times.

        Raises:
            ValueError: as ``at`` does.
        """
        wrong = np.flatnonzero(~((times_s >= self.now) & (times_s < _NEVER)))
        if wrong.size:
            self.at(float(times_s[wrong[0]]), _nothing)
        first = self._sequence + 1
        self._sequence += len(times_s)
        return first

    def at_reserved(self, time_s: float, sequence: int, act: Act, *arguments: Any) -> None:
        """Let it happen at ``time_s``, in a place in the order of scheduling that was reserved."""
        _push(self._heap, (time_s, sequence, act, arguments))

    def until(self) -> tuple[float, float]:
        """Time and place of the next event: who acts for several now may continue until then."""
        if self._heap and self._heap[0][0] <= self._until_s:
            return self._heap[0][0], self._heap[0][1]
        return self._until_s, _NEVER

    def after(self, delay_s: float, act: Act, *arguments: Any) -> None:
        """Let it happen ``delay_s`` from now."""
        self.at(self.now + delay_s, act, *arguments)

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self._heap:
            return False
        self.now, _, act, arguments = heapq.heappop(self._heap)
        self.happened += 1
        act(*arguments)
        return True

    def halt(self) -> None:
        """Let nothing happen after the event that is happening now."""
        self.halted = True

    def run(self, *, until_s: float = math.inf, at_most: float = math.inf) -> bool:
        """Run events up to ``until_s``, until halted or none is left.

        At most ``at_most`` events; whether that limit ended it.
        """
        heap, pop, last = self._heap, heapq.heappop, self.happened + at_most
        self._until_s = until_s
        while heap and heap[0][0] <= until_s and not self.halted:
            if self.happened >= last:
                return True
            self.now, _, act, arguments = pop(heap)
            self.happened += 1
            act(*arguments)
        if until_s < math.inf and not self.halted:
            self.now = max(self.now, until_s)
        return False


def _nothing() -> None:
    """An event that cannot be."""
