"""Where the data plane gets its connections: the one module that knows that they are TCP.

A stream is a connected socket. What is above it (handshake, encryption, frames) needs a descriptor that carries bytes
in order both ways, and nothing of TCP: a transport without one of its own gives one end of a ``socket.socketpair``.
"""

import contextlib
import socket

BACKLOG = 256


def connect(host: str, port: int, *, within_s: float) -> socket.socket:
    """A stream to the process that listens there.

    Raises:
        OSError: if it cannot be reached.
        UnicodeError: if that is no name of a host.
    """
    return _prepared(socket.create_connection((host, port), timeout=within_s))


class Listening:
    """A free port of ``host``, at which streams begin from creation until ``close``. ``fileno`` is readable then."""

    def __init__(self, host: str) -> None:
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, str]:
        """The next stream, and the address of its other end.

        Raises:
            BlockingIOError: if there is none.
            OSError: if none can be accepted.
        """
        connected, (address, *_) = self._socket.accept()
        return _prepared(connected), address

    def shut(self) -> None:
        """Accept no more; a selector that waits is woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def _prepared(connected: socket.socket) -> socket.socket:
    """Small frames are sent at once, and a machine that is gone is noticed."""
    with contextlib.suppress(OSError):  # it has ended already, which who reads it sees
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected
