"""How many connections the web process holds at a time, for how long without a request, and who goes first.

uvicorn ends a connection that idles after an answer, and counts connections if asked to; it has no deadline for a
request that does not come, no limit of a head's size, and holds whoever it refuses. A server that has taken as many
connections as it has descriptors answers nobody. So each connection has a deadline for what it owes, looked at once a
second; and where there are too many that have asked for nothing yet, the oldest of them makes room: an honest client
sends its request in the same moment.
"""

import asyncio
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

RESERVED_DESCRIPTORS: Final = 256
"""For the database, Redis, files and threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a stranger may have of the web process."""

    head_s: float = 10.0
    """For the whole head of a request, from the connection's begin or the head's first byte."""
    handshake_s: float = 10.0
    """For a websocket's, until it is taken or refused."""
    body_s: float = 20.0
    """For a request's body; what arrives buys more time, at ``bytes_per_s``."""
    bytes_per_s: float = 16 * 1024
    stalled_s: float = 60.0
    """For a reader to take what fills the buffers, or the rest of a connection that is being closed."""
    idle_s: float = 10.0
    """Between two requests; uvicorn's own limit is shorter, but what is no request puts it off."""
    head_bytes: int = 64 * 1024
    silent: int = 256
    """Connections that have not sent a request's head; of more, the oldest makes room."""
    bodies: int = 128
    """Connections whose request's body is under way; of more, the slowest makes room."""
    requests: int = 256
    """Requests that are being answered: each has a thread."""
    connections: int | None = None
    """In all; None: as many as there are descriptors, less ``RESERVED_DESCRIPTORS``."""
    sweep_s: float = 1.0


class Guarded(Protocol):
    """A connection as the guard sees it."""

    def overdue(self, now: float, limits: Limits) -> bool:
        """Whether it owes something for too long."""

    def abort(self) -> None:
        """End it at once."""


class Uploading(Guarded, Protocol):
    """One that is to send a body."""

    def rate(self, now: float) -> float:
        """Bytes a second since it began with that."""


class Guard:
    """Of one server."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.limits, self.loop = limits, loop
        self.most = limits.connections or max(64, _raised_descriptors() - RESERVED_DESCRIPTORS)
        self.open: set[Guarded] = set()
        self.silent: dict[Guarded, None] = {}
        """Those without a request, the oldest first."""
        self.bodies: dict[Uploading, None] = {}
        self.answering: set[Guarded] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, connection: Guarded) -> bool:
        """Count a new connection; False: there is no room for it."""
        self.open.add(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self.limits.sweep_s, self._look)
        if len(self.open) > self.most:
            if not self.silent:
                return False
            self._abort_one(self.silent)
        return True

    def leave(self, connection: Guarded) -> None:
        """It is gone."""
        self.open.discard(connection)
        self._settle(connection)

    def awaits_head(self, connection: Guarded) -> None:
        """It is to send a request's head."""
        self._settle(connection)
        self.silent[connection] = None
        while len(self.silent) > self.limits.silent:
            self._abort_one(self.silent)

    def awaits_body(self, connection: Uploading) -> None:
        """It is to send a request's body."""
        self._settle(connection)
        if len(self.bodies) >= self.limits.bodies:
            slowest = min(self.bodies, key=partial(_rate, now=self.loop.time()))
            del self.bodies[slowest]
            slowest.abort()
        self.bodies[connection] = None

    def answers(self, connection: Guarded) -> None:
        """Its request is whole, and being answered."""
        self._settle(connection)
        self.answering.add(connection)

    def idles(self, connection: Guarded) -> None:
        """It has its answer."""
        self._settle(connection)

    @property
    def is_full(self) -> bool:
        """Whether another request has to come back later."""
        return len(self.answering) >= self.limits.requests

    def _settle(self, connection: Any) -> None:
        self.silent.pop(connection, None)
        self.bodies.pop(connection, None)
        self.answering.discard(connection)

    def _abort_one(self, among: dict[Guarded, None]) -> None:
        oldest = next(iter(among))
        del among[oldest]
        oldest.abort()

    def _look(self) -> None:
        now = self.loop.time()
        for connection in list(self._overdue(now)):
            connection.abort()
        self._sweep = self.loop.call_later(self.limits.sweep_s, self._look) if self.open else None

    def _overdue(self, now: float) -> Iterator[Guarded]:
        return (connection for connection in self.open if connection.overdue(now, self.limits))


def _rate(connection: Uploading, now: float) -> float:
    return connection.rate(now)


def _raised_descriptors() -> int:
    """How many descriptors the process may have, once it has asked for all that it is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # the kernel's own limit is lower: what there is has to do
        return soft
    return most
