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
    """One TCP connection; ``sock`` is its own duplicate."""

    __slots__ = ("_acked", "_busy_us", "_rates", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rates: deque[float] = deque(maxlen=REMEMBERED)
        self._acked, self._busy_us = _read(sock)

    def took(self) -> tuple[int, float]:
        """Return the bytes delivered since the last call, and the seconds that this took."""
        acked, busy_us = _read(self.sock)
        delivered, busy_us_now = acked - self._acked, busy_us - self._busy_us
        self._acked, self._busy_us = acked, busy_us
        if delivered <= 0:
            return 0, 0.0
        self._rates.append(delivered / max(TICK_US, busy_us_now))
        return delivered, delivered / max(self._rates) / 1e6


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
            self._connections.pop(inode).sock.close()
        for inode in set(found) - set(self._connections):
            with contextlib.suppress(OSError):
                sock = socket.socket(fileno=os.dup(found[inode]))
                if _is_tcp(sock):
                    self._connections[inode] = Connection(sock)
                else:
                    sock.close()

    @property
    def sockets(self) -> list[socket.socket]:
        """Duplicates of their sockets."""
        return [each.sock for each in self._connections.values()]

    def close(self) -> None:
        """Close them."""
        for each in self._connections.values():
            each.sock.close()
        self._connections.clear()


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


def _is_tcp(sock: socket.socket) -> bool:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return False
    with contextlib.suppress(OSError):
        sock.getpeername()
        return True
    return False


def _read(sock: socket.socket) -> tuple[int, int]:
    """Bytes acknowledged, and microseconds in which bytes were in flight and the peer had room for more."""
    with contextlib.suppress(OSError):
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)
        if len(info) >= LENGTH:
            busy_us, no_room_us = struct.unpack_from("<QQ", info, BUSY_AT)
            return struct.unpack_from("<Q", info, ACKED_AT)[0], busy_us - no_room_us
    return 0, 0
