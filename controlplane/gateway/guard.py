"""Limits on the connections of the web process: their number, their deadlines, and which one is closed first.

uvicorn closes a connection that is idle after a response and can limit their number. It has no deadline for a request
that does not arrive, no limit for the size of request headers, and keeps refused connections open. A server that has
run out of descriptors answers no client. So each connection has a deadline for its current phase, checked every second.
When too many connections have sent no request, the oldest is closed: a regular client sends its request at once.
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
    """Limits for clients of the web process."""

    head_s: float = 10.0
    """For the complete request headers, from the start of the connection or the first byte of the headers."""
    handshake_s: float = 10.0
    """For a websocket handshake, until it is accepted or refused."""
    body_s: float = 20.0
    """For a request body; received bytes extend it, at ``bytes_per_s``."""
    bytes_per_s: float = 16 * 1024
    stalled_s: float = 60.0
    """For a client to drain full send buffers, also while the connection is being closed."""
    idle_s: float = 10.0
    """Between two requests; uvicorn's own limit is shorter, but any bytes reset it, even without a request."""
    head_bytes: int = 64 * 1024
    silent: int = 256
    """Connections that have not sent request headers; above this the oldest is closed."""
    bodies: int = 128
    """Connections that are sending a request body; above this the slowest is closed."""
    requests: int = 256
    """Requests in progress: each has a thread."""
    connections: int | None = None
    """In total; None: the number of descriptors less ``RESERVED_DESCRIPTORS``."""
    sweep_s: float = 1.0


class Guarded(Protocol):
    """A connection as the guard sees it."""

    def overdue(self, now: float, limits: Limits) -> bool:
        """Whether it has passed the deadline of its current phase."""

    def abort(self) -> None:
        """Close the connection immediately."""


class Uploading(Guarded, Protocol):
    """A connection that is sending a request body."""

    def rate(self, now: float) -> float:
        """Bytes per second since the start of the body."""


class Guard:
    """The connections of one server."""

    def __init__(self, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.limits, self.loop = limits, loop
        self.most = limits.connections or max(64, _raised_descriptors() - RESERVED_DESCRIPTORS)
        self.open: set[Guarded] = set()
        self.silent: dict[Guarded, None] = {}
        """Connections without a request, oldest first."""
        self.bodies: dict[Uploading, None] = {}
        self.answering: set[Guarded] = set()
        self._sweep: asyncio.TimerHandle | None = None

    def enter(self, connection: Guarded) -> bool:
        """Count a new connection; False if the limit is reached."""
        self.open.add(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self.limits.sweep_s, self._look)
        if len(self.open) > self.most:
            if not self.silent:
                return False
            self._abort_one(self.silent)
        return True

    def leave(self, connection: Guarded) -> None:
        """Remove a connection that has ended."""
        self.open.discard(connection)
        self._settle(connection)

    def awaits_head(self, connection: Guarded) -> None:
        """The connection is expected to send request headers."""
        self._settle(connection)
        self.silent[connection] = None
        while len(self.silent) > self.limits.silent:
            self._abort_one(self.silent)

    def awaits_body(self, connection: Uploading) -> None:
        """The connection is expected to send a request body."""
        self._settle(connection)
        if len(self.bodies) >= self.limits.bodies:
            slowest = min(self.bodies, key=partial(_rate, now=self.loop.time()))
            del self.bodies[slowest]
            slowest.abort()
        self.bodies[connection] = None

    def answers(self, connection: Guarded) -> None:
        """The connection's request is complete and in progress."""
        self._settle(connection)
        self.answering.add(connection)

    def idles(self, connection: Guarded) -> None:
        """The connection's response was sent."""
        self._settle(connection)

    @property
    def is_full(self) -> bool:
        """Whether new requests are refused for now."""
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
    """The descriptor limit, after raising the soft limit to what is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else max(soft, 1_048_576)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError):  # the kernel's limit is lower
        return soft
    return most
