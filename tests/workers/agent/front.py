"""One address for websockets and HTTP, as the control plane has: looks at the method and splices the bytes through."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def front(sockets: str, http: str) -> Iterator[str]:
    """The address that stands for both: GET goes to ``sockets``, everything else to ``http``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=_splice, args=(client, sockets, http), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _splice(client: socket.socket, sockets: str, http: str) -> None:
    method = client.recv(3, socket.MSG_PEEK)
    backend = urlsplit(sockets if method == b"GET" else http)
    with client, contextlib.suppress(OSError), socket.create_connection((backend.hostname, backend.port)) as server:
        back = threading.Thread(target=_pour, args=(server, client), daemon=True)
        back.start()
        _pour(client, server)
        back.join()


def _pour(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
