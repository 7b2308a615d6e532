"""Restart limits: how often a service that exited is restarted, and after what delay."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.processes import Service

LIMIT = 5
"""Restarts within ``WINDOW_S``; one more end, and it is no accident."""

WINDOW_S = 60.0
PAUSES_S = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Before the first, second, ... restart of the last minute."""


@dataclass(slots=True)
class Restarts:
    """The restarts of one stateless service: a new process continues where the last one ended."""

    start: Callable[[], Service]
    _times: deque[float] = field(default_factory=deque)
    _due: float | None = None

    def successor(self, ended: Service, now: float, say: Callable[[str], None]) -> Service | None:
        """The process in place of the one that ``ended``; None while the pause before it lasts.

        Raises:
            CannotStart: if it has ended too often, with the end of its log.
        """
        if self._due is None:
            self._due = self._plan(ended, now, say)
        if now < self._due:
            return None
        ended.await_stop(0)  # what it had started ends with it
        self._due = None
        return self.start()

    def _plan(self, ended: Service, now: float, say: Callable[[str], None]) -> float:
        """When to restart it; informs the operator."""
        while self._times and self._times[0] <= now - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= LIMIT:
            raise CannotStart(
                f"{ended.name} {ended.ending()}, after {LIMIT} restarts within {WINDOW_S:.0f} s. "
                f"The end of its log, {ended.log}:\n{ended.tail()}"
            )
        pause = PAUSES_S[len(self._times)]
        when = f"in {pause:.0f} s" if pause else "now"
        say(f"{ended.name} {ended.ending()}; it is started again {when}. Its log: {ended.log}")
        self._times.append(now)
        return now + pause
