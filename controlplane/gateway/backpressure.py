"""Backpressure on long logs: while ingest is behind, each sender appends one message per interval, in order.

Sockets are still read, so that heartbeats arrive. A sender keeps a rejected message, which is not durable, and resends
it. The messages that are admitted also keep the log's length up to date, so that the limit is lifted in time.
"""

from typing import Final

from controlplane.runtime import names

SLOW_S: Final = 1.0
"""Interval between two messages of one sender, once the log is long."""

FULL_S: Final = 10.0
"""The interval once the log has reached its maximum length."""

REJECTION_S: Final = 1.0
"""Shortest interval between two rejections to one sender."""


class Backpressure:
    """Backpressure on the connection of one sender."""

    def __init__(self) -> None:
        self._next_s = self._rejected_s = float("-inf")
        self.refused: int | None = None
        """The first rejected message: later ones are rejected until it is resent."""

    def admits(self, number: int, *, length: int, now_s: float) -> bool:
        """Whether to append the message to a log of ``length`` entries."""
        if self.refused is not None and number > self.refused:
            return False
        if length >= names.LONG_LOG and now_s < self._next_s:
            self.refused = number
            return False
        self.refused = None
        self._next_s = now_s + (FULL_S if length >= names.FULL_LOG else SLOW_S)
        return True

    def sends_rejection(self, now_s: float) -> bool:
        """Whether to send the sender a rejection now."""
        if now_s - self._rejected_s < REJECTION_S:
            return False
        self._rejected_s = now_s
        return True
