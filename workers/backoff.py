"""Delays between retries: exponential, with jitter, so that the machines of a fleet do not
reconnect at the same time.
"""

from random import Random

FIRST_S = 0.5
MOST_S = 30.0


class Backoff:
    """Delays drawn between ``first_s`` and an upper bound that doubles with each attempt, up to ``most_s``."""

    def __init__(self, rng: Random | None = None, *, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._rng = rng or Random()
        self._first_s, self._most_s = first_s, most_s
        self.attempts = 0

    def next_s(self) -> float:
        """The delay before the next attempt, in seconds."""
        self.attempts += 1
        bound = min(self._most_s, self._first_s * 2.0 ** min(self.attempts, 30))
        return self._rng.uniform(self._first_s, bound)

    def reset(self) -> None:
        """The last attempt succeeded: reset the delay."""
        self.attempts = 0
