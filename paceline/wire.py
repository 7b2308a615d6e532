"""Measures how long this process's links need for their traffic, from the kernel's statistics of each TCP connection.

A sum over the ranks takes as long on every rank as on the slowest link. But only the rank of that link has bytes in
flight for the whole time: ``tcpi_busy_time`` of TCP_INFO (tcp(7)), less ``tcpi_rwnd_limited``, when its peer's receive
window was full because the peer itself waited for another link. A receiver may acknowledge up to 40 ms late, so the
best of the last readings is used. Only Linux has these statistics; on other systems, and on networks other than TCP, no
link counts as slow.
"""

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final

LENGTH: Final = 184
ACKED_AT, BUSY_AT = 120, 168
"""Offsets in ``struct tcp_info``: ``tcpi_bytes_acked``, and ``tcpi_busy_time`` with ``tcpi_rwnd_limited``, in us."""

TICK_US: Final = 4_000
"""The kernel counts in ticks of its clock; shorter times cannot be distinguished."""

MUCH: Final = 1 / 16
"""Fraction of the busiest connection's bytes: a connection with less is ignored, since its time is that of late
acknowledgements.
"""

REMEMBERED: Final = 8
"""The best rate of this many readings is used."""

AGAIN: Final = 80
"""The list of connections is refreshed after this many iterations."""

AT_FIRST: Final = 16
"""In this many iterations each connection is read: until shares have converged, and the best of some readings is known.
"""

EVERY, FEW, RARELY = 4, 12, 8
"""Later, connections are read every so many iterations; less often if there are many."""


class Connection:
    """One TCP connection of the script, by its file descriptor; a closed one has delivered nothing.

    It is not duplicated: if the script closes it, its peer must see the end.
    """

    __slots__ = ("_acked", "_busy_us", "_inode", "_rates", "descriptor")

    def __init__(self, descriptor: int, inode: int) -> None:
        self.descriptor, self._inode = descriptor, inode
        self._rates: deque[float] = deque(maxlen=REMEMBERED)
        self._acked, self._busy_us = self._read()

    def took(self) -> tuple[int, float]:
        """Return the bytes delivered since the last call, and the seconds that this took."""
        acked, busy_us = self._read()
        delivered, busy_us_now = acked - self._acked, busy_us - self._busy_us
        self._acked, self._busy_us = acked, busy_us
        if delivered <= 0:
            return 0, 0.0
        self._rates.append(delivered / max(TICK_US, busy_us_now))
        return delivered, delivered / max(self._rates) / 1e6

    def _read(self) -> tuple[int, int]:
        """Bytes acknowledged, and microseconds in which bytes were in flight and the peer had room for more."""
        with contextlib.suppress(OSError):
            if os.fstat(self.descriptor).st_ino == self._inode:
                with borrowed(self.descriptor) as sock:
                    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)
                if len(info) >= LENGTH:
                    busy_us, no_room_us = struct.unpack_from("<QQ", info, BUSY_AT)
                    return struct.unpack_from("<Q", info, ACKED_AT)[0], busy_us - no_room_us
        return 0, 0


class Wire:
    """The TCP connections of this process."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}
        """By the inode of the socket."""
        self._readings = 0
        self._last_s = 0.0

    def took_s(self) -> float:
        """How long the slowest connection took to deliver its bytes since the last call."""
        if self._readings % AGAIN == 0:
            self.look()
        self._readings += 1
        every = 1 if self._readings <= AT_FIRST else RARELY if len(self._connections) > FEW else EVERY
        if self._readings % every == 0:
            took = [each.took() for each in self._connections.values()]
            much = MUCH * max((delivered for delivered, _ in took), default=0)
            self._last_s = max((seconds for delivered, seconds in took if delivered >= much), default=0.0) / every
        return self._last_s

    def look(self) -> None:
        """Find the connections that exist now."""
        found = _inodes() if hasattr(socket, "TCP_INFO") else {}
        for inode in set(self._connections) - set(found):
            del self._connections[inode]
        for inode in set(found) - set(self._connections):
            if _is_tcp(found[inode]):
                self._connections[inode] = Connection(found[inode], inode)

    @property
    def descriptors(self) -> list[int]:
        """Those of the connections."""
        return [each.descriptor for each in self._connections.values()]


def _inodes() -> dict[int, int]:
    """A file descriptor of each socket of this process."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError, ValueError):
                kind, _, inode = os.readlink(f"/proc/self/fd/{name}").partition(":[")
                if kind == "socket":
                    found.setdefault(int(inode.rstrip("]")), int(name))
    return found


@contextlib.contextmanager
def borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket of that file descriptor, which stays open."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        yield sock
    finally:
        sock.detach()


def _is_tcp(descriptor: int) -> bool:
    with contextlib.suppress(OSError), borrowed(descriptor) as sock:
        domain = sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
        kind = sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)
        is_connected = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
        return domain in (socket.AF_INET, socket.AF_INET6) and kind == socket.SOCK_STREAM and is_connected
    return False
