"""Forwards a rank's iterations to an experiment tracker, on a thread of its own: a tracker may block for minutes.

Training never waits for a tracker. Iterations wait in a queue; when it is full, further ones are not forwarded and are
counted. The end of the script waits for the queue, within a limit.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from paceline.reporting import Iteration

MOST_KEPT: Final = 5_000
"""Iterations that may wait: about 3 MiB, and 40 minutes without a tracker at two iterations per second."""

MOST_AT_ONCE: Final = 100
"""Iterations that a tracker receives in one call, so that a slow server catches up."""

log = logging.getLogger("paceline")


class Point(NamedTuple):
    """An iteration, and when it was reported, in seconds since the epoch."""

    iteration: Iteration
    at_s: float


class Tracker(Protocol):
    """An experiment tracker. All its methods are called on one thread; they may block and raise."""

    def open(self) -> None:
        """Connect, and begin a run."""

    def send(self, points: Sequence[Point]) -> None:
        """Add these iterations to the run."""

    def close(self) -> None:
        """End the run."""


class Forwarding:
    """The queue and the thread of one tracker; a subscriber of a pacer.

    Args:
        where: the tracker's folder, address or project, for the log.
        tracker: to be opened by the thread.
        opened: called by the thread once the tracker is open.
    """

    def __init__(
        self, where: str, tracker: Tracker, *, opened: Callable[[], object] = lambda: None, most_kept: int = MOST_KEPT
    ) -> None:
        self._where, self._tracker, self._opened, self._most_kept = where, tracker, opened, most_kept
        self._changed = threading.Condition()
        self._kept: deque[Point] = deque()
        self._sending = self._lost = 0
        """Iterations that the tracker has just received, and iterations that were not forwarded."""
        self._overflowed = self._failed = self._refused = self._is_over = False
        self._thread = threading.Thread(target=self._run, name="paceline-tracker", daemon=True)
        self._thread.start()

    # -- for the script's thread

    def __call__(self, iteration: Iteration) -> None:
        """Forward this iteration as soon as possible."""
        with self._changed:
            if self._is_over or self._refused:
                return
            if len(self._kept) < self._most_kept:
                self._kept.append(Point(iteration, time.time()))
                self._changed.notify()
                return
            self._lost += 1
            is_first, self._overflowed = not self._overflowed, True
        if is_first:
            log.warning(
                "paceline: %s does not keep up: %d iterations wait, and further ones are not forwarded",
                self._where,
                self._most_kept,
            )

    def end(self) -> None:
        """No iteration follows; does not wait."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """After ``end``: wait until all is forwarded, at most this long; log how many iterations were not."""
        self._thread.join(seconds)
        with self._changed:
            is_open = self._thread.is_alive()
            lost = self._lost + len(self._kept) + self._sending
        if lost:
            log.warning("paceline: %d iterations were not forwarded to %s", lost, self._where)
        elif is_open:
            log.warning("paceline: %s has not confirmed the end of the run", self._where)

    # -- on its own thread

    def _run(self) -> None:
        try:
            self._tracker.open()
        except Exception as error:
            log.warning("paceline: nothing is forwarded to %s: %s", self._where, error)
            with self._changed:
                self._refused = True
                self._kept.clear()
            return
        self._opened()
        while points := self._take():
            self._send(points)
        try:
            self._tracker.close()
        except Exception as error:
            log.warning("paceline: the run in %s was not ended: %s", self._where, error)

    def _take(self) -> list[Point]:
        """The next iterations; none at the end."""
        with self._changed:
            self._sending = 0
            self._changed.wait_for(lambda: self._kept or self._is_over)
            points = [self._kept.popleft() for _ in range(min(MOST_AT_ONCE, len(self._kept)))]
            self._sending = len(points)
            return points

    def _send(self, points: list[Point]) -> None:
        try:
            self._tracker.send(points)
        except Exception as error:
            with self._changed:
                self._lost += len(points)
                self._sending = 0
            if not self._failed:
                self._failed = True
                log.warning("paceline: iterations were not forwarded to %s: %s", self._where, error)
