"""Detects an iteration that takes much longer than usual, and reports what this rank is doing in it.

If one rank does not join a sum, all others block in it, and an iteration that does not end is not reported. So the
connection's thread checks once a second, and reports the position of the script's thread.
"""

import time
from functools import partial
from typing import Final

from controlplane.protocol.messages import Place, Stalled
from paceline.control import Control

LEAST_S: Final = 30.0
TIMES: Final = 20.0
"""An iteration is overdue after this many times its usual duration, and at least this many seconds."""

AGAIN: Final = 1.5
"""It is reported again after this many times that duration."""

SMOOTHING: Final = 0.1


class Stalls:
    """The position of the script's thread. Written by that thread, read by the connection's thread."""

    def __init__(self, control: Control | None) -> None:
        self._control = control
        self.place: Place | None = None
        """None: no iteration is due, before the first iteration, in a pause or after the last."""
        self._iteration = 0
        self._since_s = 0.0
        self._usual_s = 0.0
        self._due_s = 0.0
        if control is not None:
            control.on_beat(self.look)

    def begin(self, iteration: int) -> None:
        """That iteration starts now; the previous one has ended."""
        now_s = time.perf_counter()
        if self.place is not None:
            took_s = now_s - self._since_s
            self._usual_s += (took_s - self._usual_s) * (SMOOTHING if self._usual_s else 1.0)
        self._iteration, self._since_s = iteration, now_s
        self._due_s = max(LEAST_S, TIMES * self._usual_s)
        self.place = "outside"

    @property
    def usual_s(self) -> float:
        """Duration of past iterations, smoothed; 0: not known."""
        return self._usual_s

    def look(self) -> None:
        """Report the open iteration if it is overdue."""
        place, iteration, open_s = self.place, self._iteration, time.perf_counter() - self._since_s
        if self._control is None or place is None or open_s < self._due_s:
            return
        self._due_s = open_s * AGAIN
        self._control.say(partial(_numbered, iteration=iteration, place=place, open_s=open_s, usual_s=self._usual_s))


def _numbered(number: int, *, iteration: int, place: Place, open_s: float, usual_s: float) -> Stalled:
    return Stalled(number=number, iteration=iteration, place=place, open_s=open_s, usual_s=usual_s)
