"""A machine slower than the one that it runs on: the real work, then a pause up to the stated speed."""

import time
from collections.abc import Callable

from controlplane.protocol.spec import Emulation


class Pace:
    """Makes ``x`` samples take ``x / samples_per_second``; without an emulation it changes nothing.

    Args:
        rest: pauses for so many seconds; an event's ``wait``, so that stopping ends the pause.
    """

    def __init__(
        self, emulation: Emulation | None, *, rest: Callable[[float], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._emulation, self._rest, self._now = emulation, rest, now
        self._began = now()

    def begin(self) -> None:
        """The work on the samples begins."""
        self._began = self._now()

    def finish(self, samples: int) -> bool:
        """The work on ``samples`` is done: rest until its time is up. True if it was up already: an overrun."""
        if self._emulation is None:
            return False
        left_s = self._began + samples / self._emulation.samples_per_second - self._now()
        if left_s < 0.0:
            return samples > 0
        self._rest(left_s)
        return False
