"""Who may still append to a long log: while history falls behind, each sender one message in a while, in order.

Everybody is read on, so that signs of life arrive; what is not admitted its sender keeps and says again, since it is
not durable. A sender that is let through now and then also learns, for its job, when the log is short again.
"""

from typing import Final

from controlplane.runtime import names

SLOW_S: Final = 1.0
"""Between two messages of one sender, once the log is long."""

FULL_S: Final = 10.0
"""The same, once it is as long as it may become."""

TELL_S: Final = 1.0


class Pace:
    """Of one sender's connection."""

    def __init__(self) -> None:
        self._next_s = self._told_s = float("-inf")
        self.refused: int | None = None
        """The first message that was not admitted: nothing behind it is, before it comes again."""

    def admits(self, number: int, *, length: int, now_s: float) -> bool:
        """Whether to append the message, where the log has ``length`` entries."""
        if self.refused is not None and number > self.refused:
            return False
        if length >= names.LONG_LOG and now_s < self._next_s:
            self.refused = number
            return False
        self.refused = None
        self._next_s = now_s + (FULL_S if length >= names.FULL_LOG else SLOW_S)
        return True

    def tells(self, now_s: float) -> bool:
        """Whether to tell the sender now that it was not admitted."""
        if now_s - self._told_s < TELL_S:
            return False
        self._told_s = now_s
        return True
