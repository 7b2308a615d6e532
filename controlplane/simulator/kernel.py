"""Virtual time: a heap of what is to happen, ordered by (time, sequence). Nothing here knows what a worker is.

Ties go to whoever was scheduled first, so a run is a function of its inputs alone.
"""

import heapq
import math
from collections.abc import Callable
from typing import Any

Act = Callable[..., None]


class Kernel:
    """The clock and the future. ``now`` is in seconds of virtual time."""

    __slots__ = ("_heap", "_sequence", "happened", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.happened = 0
        """How many events there have been."""
        self._heap: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._sequence = 0

    @property
    def pending(self) -> int:
        """How many events are still to come."""
        return len(self._heap)

    def at(self, time_s: float, act: Act, *arguments: Any) -> None:
        """Let ``act(*arguments)`` happen at ``time_s``, after all that was scheduled for then before.

        Raises:
            ValueError: if that is in the past, or no time at all.
        """
        if not self.now <= time_s < math.inf:
            raise ValueError(f"an event at {time_s} s, but it is {self.now} s: only a finite time to come will do")
        self._sequence += 1
        heapq.heappush(self._heap, (time_s, self._sequence, act, arguments))

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

    def run(self, *, until_s: float = math.inf, stop: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen up to ``until_s``, until ``stop`` says so or nothing is left."""
        heap = self._heap
        while heap and heap[0][0] <= until_s and not stop():
            self.now, _, act, arguments = heapq.heappop(heap)
            self.happened += 1
            act(*arguments)
        if until_s < math.inf and not stop():
            self.now = max(self.now, until_s)
