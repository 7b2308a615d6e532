"""Virtual time: a heap of future events, ordered by (time, sequence). This module knows nothing about workers.

Ties are broken in the order of scheduling, so a run depends on its inputs only.
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
    """The clock and the pending events. ``now`` is virtual time in seconds."""

    __slots__ = ("_heap", "_sequence", "_until_s", "halted", "happened", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        """The number of past events."""
        self._heap: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._sequence = 0
        self._until_s = _NEVER
        self.halted = False
        """Whether the run stops after the present event."""

    @property
    def pending(self) -> int:
        """The number of pending events."""
        return len(self._heap)

    def at(self, time_s: float, act: Act, *arguments: Any) -> None:
        """Schedule ``act(*arguments)`` for ``time_s``, after all earlier events for the same time.

        Raises:
            ValueError: if the time is in the past or not finite.
        """
        if not self.now <= time_s < _NEVER:
            raise ValueError(f"an event at {time_s} s, but it is {self.now} s: expected a finite time in the future")
        self._sequence += 1
        _push(self._heap, (time_s, self._sequence, act, arguments))

    def reserve(self, times_s: NDArray[np.float64]) -> int:
        """Reserve consecutive sequence numbers for events at those times; returns the first.

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
        """Schedule ``act`` for ``time_s`` with a reserved sequence number."""
        _push(self._heap, (time_s, sequence, act, arguments))

    def until(self) -> tuple[float, float]:
        """Time and sequence number of the next event; batched events may continue until then."""
        if self._heap and self._heap[0][0] <= self._until_s:
            return self._heap[0][0], self._heap[0][1]
        return self._until_s, _NEVER

    def after(self, delay_s: float, act: Act, *arguments: Any) -> None:
        """Schedule ``act`` in ``delay_s`` seconds."""
        self.at(self.now + delay_s, act, *arguments)

    def step(self) -> bool:
        """Execute the next event; False if there is none."""
        if not self._heap:
            return False
        self.now, _, act, arguments = heapq.heappop(self._heap)
        self.happened += 1
        act(*arguments)
        return True

    def halt(self) -> None:
        """Stop after the present event."""
        self.halted = True

    def run(self, *, until_s: float = math.inf, at_most: float = math.inf) -> bool:
        """Run events up to ``until_s``, until halted or none is left.

        Runs at most ``at_most`` events; returns whether that limit was reached.
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
    """Passed to ``at`` for its error on invalid times."""
