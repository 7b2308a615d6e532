"""How long this process's links need for their traffic, by the kernel's measurement of each TCP connection.

A sum over the ranks takes as long for every rank as for the slowest link. But only that link's rank has bytes in flight
all that time: ``tcpi_busy_time`` of TCP_INFO (tcp(7)), less ``tcpi_rwnd_limited``, in which its peer had no room for
more because it waited for another link itself. A receiver may acknowledge up to 40 ms late, so the best of the last
readings counts. Only Linux has it; on other systems, and on networks that are not TCP, no link counts as slow.
"""

import contextlib
import os
import socket
import struct
from collections import deque
from typing import Final

LENGTH: Final = 184
ACKED_AT, BUSY_AT = 120, 168
"""In ``struct tcp_info``: of ``tcpi_bytes_acked``, and of ``tcpi_busy_time`` with ``tcpi_rwnd_limited``, in us."""

TICK_US: Final = 4_000
"""The kernel counts in ticks of its clock; shorter times cannot be distinguished."""

MUCH: Final = 1 / 16
"""Of the busiest connection's bytes: one that carries less does not count, its time is late acknowledgements'."""

REMEMBERED: Final = 8
"""The best rate of this many readings counts."""

AGAIN: Final = 80
"""The list of connections is refreshed after this many iterations."""

AT_FIRST: Final = 16
"""In so many iterations each is read: while shares settle, and until the best of some readings is known."""

EVERY, FEW, RARELY = 4, 12, 8
"""Later connections are read every so many iterations; less often where there are many."""


class Connection:
    """One TCP connection; ``sock`` is its own duplicate."""

    __slots__ = ("_acked", "_busy_us", "_rates", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rates: deque[float] = deque(maxlen=REMEMBERED)
        self._acked, self._busy_us = _read(sock)

    def took(self) -> tuple[int, float]:
        """The bytes that it delivered since the last call, and the seconds that it took."""
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
        """How long the slowest of them took to deliver its bytes since the last call."""
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
    """A descriptor of each socket of this process."""
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
