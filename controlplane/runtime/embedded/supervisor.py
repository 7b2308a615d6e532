"""Runs a set of services: if one exits, all end, except for services that may be restarted.

Every process that it started has ended when its ``with`` block is left.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Self

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.interruption import Interruption
from controlplane.runtime.embedded.processes import STOP_S, Service, stop_services

LOOK_S = 0.1
"""How often a wait checks the children and the signals."""

LIMIT = 5
"""Maximum restarts within ``WINDOW_S``."""

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
        """The replacement of the process that ``ended``; None during the delay before it.

        Raises:
            CannotStart: if it has ended too often, with the end of its log.
        """
        if self._due is None:
            self._due = self._plan(ended, now, say)
        if now < self._due:
            return None
        ended.await_stop(0)  # its children end with it
        self._due = None
        return self.start()

    def _plan(self, ended: Service, now: float, say: Callable[[str], None]) -> float:
        """The time of the restart; also informs the operator."""
        while self._times and self._times[0] <= now - WINDOW_S:
            self._times.popleft()
        if len(self._times) >= LIMIT:
            raise CannotStart(
                f"{ended.name} {ended.ending()}, after {LIMIT} restarts within {WINDOW_S:.0f} s. "
                f"The end of its log, {ended.log}:\n{ended.tail()}"
            )
        pause = PAUSES_S[len(self._times)]
        when = f"in {pause:.0f} s" if pause else "now"
        say(f"{ended.name} {ended.ending()}; restarting {when}. Its log: {ended.log}")
        self._times.append(now)
        return now + pause


class Supervisor:
    """Services in the order of their start; they end in reverse, level by level."""

    def __init__(self, interruption: Interruption, *, say: Callable[[str], None] = lambda line: None) -> None:
        """``say`` prints a line for the operator."""
        self.interruption = interruption
        self.say = say
        self.leftovers = ExitStack()
        """Clean-up after all services have ended."""
        self._levels: list[list[Service]] = []
        self._restarts: dict[str, Restarts] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def add(self, *services: Service, beside_the_last: bool = False) -> None:
        """Watch services that may end together, either before earlier services or together with the last ones."""
        if not (beside_the_last and self._levels):
            self._levels.append([])
        self._levels[-1] += services

    def keep_running(self, starts: Mapping[str, Callable[[], Service]]) -> None:
        """From now on, restart the services of these names when they exit."""
        self._restarts |= {name: Restarts(start) for name, start in starts.items()}

    @property
    def services(self) -> Sequence[Service]:
        """All running processes."""
        return [service for level in self._levels for service in level]

    def check(self) -> None:
        """Check that all services run or will be restarted.

        Raises:
            CannotStart: with the first service that does not, and the end of its log.
        """
        for service in self.services:
            if not service.is_over():
                continue
            if service.name not in self._restarts:
                service.check()
            elif new := self._restarts[service.name].successor(service, time.monotonic(), self.say):
                self.replace(service, new)

    def replace(self, old: Service, new: Service) -> None:
        """Watch ``new`` instead of ``old``, which has ended."""
        for level in self._levels:
            level[:] = [new if service is old else service for service in level]

    def wait_until(self, holds: Callable[[], bool], *, what: str, seconds: float) -> None:
        """Wait for ``holds``, watching the services and the signals.

        Raises:
            Interrupted: if a signal to end arrives.
            CannotStart: if a service ends for good, or time is up; ``what`` is the sentence's subject.
        """
        deadline = time.monotonic() + seconds
        while not holds():
            self.check()
            if time.monotonic() > deadline:
                logs = sorted({str(service.log.parent) for service in self.services})
                raise CannotStart(f"{what} took longer than {seconds:.0f} s. Logs are in {', '.join(logs)}.")
            self.interruption.pause(LOOK_S)

    def watch(self) -> None:
        """Run until the end is requested.

        Raises:
            Interrupted: when it is.
            CannotStart: if a service ends by itself for good.
        """
        while True:
            self.check()
            self.interruption.pause(LOOK_S * 5)

    def stop_last(self) -> None:
        """End the level that was added last."""
        if self._levels:
            stop_services(self._levels[-1], seconds=STOP_S)
            self._levels.pop()

    def stop(self) -> None:
        """End all, the last level first."""
        with self.leftovers:
            while self._levels:
                self.stop_last()
