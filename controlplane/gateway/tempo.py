"""How fast one connection may speak: who is faster is read more slowly, and closed if that does not help.

It looks at the clock once per lap of many messages, so that it costs a message next to nothing.
"""

from typing import Final

MACHINE_PER_S: Final = 5_000.0
"""Messages per second of a worker, server or agent: more than one connection's round trips allow, resends included."""

PAGE_PER_S: Final = 10.0
"""A page asks for what it missed, now and then."""

LAPS_PER_S: Final = 20.0
FLOOD_S: Final = 10.0
"""Held back for so long without a pause, a connection is a flood."""


class Tempo:
    """The messages of one connection, timed in laps."""

    def __init__(self, per_s: float) -> None:
        self._lap = max(1, int(per_s / LAPS_PER_S))
        self._lap_s = self._lap / per_s
        self._left = self._lap
        self._began_s: float | None = None
        self._held_since_s: float | None = None
        self.floods = False
        """Whether it has been too fast for too long."""

    def lap_is_over(self) -> bool:
        """One more message; whether to look at the clock."""
        self._left -= 1
        return self._left <= 0

    def rest_s(self, now_s: float) -> float:
        """How long to read nothing, now that a lap is over."""
        self._left = self._lap
        rest_s = 0.0 if self._began_s is None else max(0.0, self._began_s + self._lap_s - now_s)
        self._began_s = now_s + rest_s
        if rest_s == 0.0:
            self._held_since_s = None
        elif self._held_since_s is None:
            self._held_since_s = now_s
        self.floods = self._held_since_s is not None and now_s - self._held_since_s >= FLOOD_S
        return rest_s
