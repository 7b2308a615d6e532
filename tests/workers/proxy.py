"""A network that breaks, or is listened to: a TCP proxy on loopback."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence


class BreakingProxy:
    """Forwards to ``target``; connection ``i`` breaks after ``limits[i]`` bytes either way, later ones never.

    ``captured`` has what passed, each direction of a connection by itself.
    """

    def __init__(self, target: tuple[str, int], limits: Sequence[int] = ()) -> None:
        self.target, self.limits = target, list(limits)
        self.captured: list[bytearray] = []
        self.broken = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        self._run(self._accept)

    def close(self) -> None:
        for each in [self._listening, *self._sockets]:
            _end(each)
        for thread in self._threads:
            thread.join(10.0)
        for each in [self._listening, *self._sockets]:
            each.close()

    def _run(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(self.target)
                self._sockets += [near, far]
                limit = self.limits.pop(0) if self.limits else None
                self._run(self._pump, near, far, limit)
                self._run(self._pump, far, near, limit)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed, captured = 0, bytearray()
        self.captured.append(captured)
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if limit is not None and passed + len(data) > limit:
                    captured += data[: limit - passed]
                    sink.sendall(data[: limit - passed])
                    self.broken += 1
                    break
                captured += data
                sink.sendall(data)
                passed += len(data)
        _end(source)
        _end(sink)


@contextlib.contextmanager
def breaking_proxies() -> Iterator[list[BreakingProxy]]:
    """A list to which a test adds proxies; all are closed at the end."""
    proxies: list[BreakingProxy] = []
    try:
        yield proxies
    finally:
        for proxy in proxies:
            proxy.close()


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
