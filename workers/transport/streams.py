"""Opens and accepts the data plane's connections: the only module that depends on TCP.

A stream is a connected socket. The layers above (handshake, encryption, frames) need a descriptor that carries bytes in
order in both directions, and nothing of TCP: a transport without a socket of its own returns one end of a
``socket.socketpair``.
"""

import contextlib
import socket

BACKLOG = 256


def connect(host: str, port: int, *, within_s: float) -> socket.socket:
    """Connect to the process that listens there.

    Raises:
        OSError: if it cannot be reached.
        UnicodeError: if the host name is invalid.
    """
    return _prepared(socket.create_connection((host, port), timeout=within_s))


class Listening:
    """Accepts streams on a free port of ``host``, from creation until ``close``. ``fileno`` is readable when one is
    pending.
    """

    def __init__(self, host: str) -> None:
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def fileno(self) -> int:
        """The file descriptor, for a selector."""
        return self._socket.fileno()

    def accept(self) -> tuple[socket.socket, str]:
        """Return the next stream, and the address of its other end.

        Raises:
            BlockingIOError: if there is none.
            OSError: if none can be accepted.
        """
        connected, (address, *_) = self._socket.accept()
        return _prepared(connected), address

    def shut(self) -> None:
        """Accept no more; wakes a waiting selector."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def _prepared(connected: socket.socket) -> socket.socket:
    """Send small frames immediately, and detect peers that are gone."""
    with contextlib.suppress(OSError):  # it has ended already; the reader gets the error
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected
