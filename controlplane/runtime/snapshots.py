"""Decides when to write a snapshot: often enough for a quick recovery, seldom enough to cost little.

A snapshot of a large job takes milliseconds, a read of the log microseconds, so not every commit writes one. Recovery
loads the last snapshot and replays the log after it, whose answers are in the command stream.
"""

import time
from collections.abc import Callable
from typing import Final

SHORTEST_S: Final = 1.0
COST_SHARE: Final = 0.02
"""Largest share of a holder's time that goes into snapshots."""

MOST_ENTRIES: Final = 5_000
"""Entries after which one is due in any case, so that a replay stays short."""


class SnapshotPace:
    """Says when one is due, from what the last one took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._pause_s = SHORTEST_S
        self.entries = 0
        """Entries that no snapshot covers yet."""

    def due(self) -> bool:
        """Whether to write one with the next commit."""
        return self.entries >= MOST_ENTRIES or (self.entries > 0 and self._clock() - self._last >= self._pause_s)

    def make(self, snapshot: Callable[[], bytes]) -> bytes:
        """Write one, and take its time into account."""
        started = self._clock()
        data = snapshot()
        self._last = self._clock()
        self._pause_s = max(SHORTEST_S, (self._last - started) / COST_SHARE)
        self.entries = 0
        return data
