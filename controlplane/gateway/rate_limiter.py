"""Rate limit of one connection: a client above it is read more slowly, and closed if it does not slow down.

The clock is read once per batch of messages, so that the cost per message is negligible.
"""

from typing import Final

MACHINE_PER_S: Final = 5_000.0
"""Messages per second of a worker, server or agent: above what its round trips allow, resends included."""

RELAY_PER_S: Final = 20_000.0
"""Batches per second of a machine's relay; each of its channels has the limit of a machine's process."""

PAGE_PER_S: Final = 10.0
"""Messages per second of a page, which sends only requests for missed ticks."""

CHECKS_PER_S: Final = 20.0
FLOOD_S: Final = 10.0
"""A connection that is throttled continuously for this long is closed."""


class RateLimiter:
    """Counts the messages of one connection in batches and computes the pause after each."""

    def __init__(self, per_s: float) -> None:
        self._batch = max(1, int(per_s / CHECKS_PER_S))
        self._batch_s = self._batch / per_s
        self._left = self._batch
        self._began_s: float | None = None
        self._throttled_since_s: float | None = None
        self.floods = False
        """Whether the connection has been too fast for ``FLOOD_S``."""

    def is_due(self) -> bool:
        """Count one message; whether the batch is complete and ``pause_s`` is due."""
        self._left -= 1
        return self._left <= 0

    def pause_s(self, now_s: float) -> float:
        """How long to stop reading, after a complete batch."""
        self._left = self._batch
        pause_s = 0.0 if self._began_s is None else max(0.0, self._began_s + self._batch_s - now_s)
        self._began_s = now_s + pause_s
        if pause_s == 0.0:
            self._throttled_since_s = None
        elif self._throttled_since_s is None:
            self._throttled_since_s = now_s
        self.floods = self._throttled_since_s is not None and now_s - self._throttled_since_s >= FLOOD_S
        return pause_s
