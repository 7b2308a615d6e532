"""TCP proxies with connections that can be cut: a machine's links, and workers' links to servers."""

import contextlib
import random
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

import psutil

ANNOUNCED: Final = "127.0.0.2"
"""The advertised addresses of servers: proxies forward the same ports to the real ones."""

FOLLOW_S: Final = 0.1


class LinkProxy:
    """A TCP proxy in front of ``target``. Its connections can be cut; while it is cut, new ones fail."""

    def __init__(self, target: tuple[str, int], at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = threading.Event()
        self._listening = socket.create_server(at, backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name="link proxy", daemon=True).start()

    def cut(self, seconds: float) -> None:
        """Close all connections, and refuse new ones for ``seconds``."""
        self._cut.set()
        with self._lock:
            for each in list(self._open):
                _end(each)
        timer = threading.Timer(seconds, self._cut.clear)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """Stop listening, and close all connections."""
        _end(self._listening)
        self._listening.close()
        self.cut(0.0)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                self._join(near)

    def _join(self, near: socket.socket) -> None:
        if self._cut.is_set():
            near.close()
            return
        try:
            far = socket.create_connection(self._target, timeout=2.0)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        with self._lock:
            self._open |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        _end(source)
        _end(sink)
        with self._lock:
            self._open.discard(source)
        source.close()  # the other direction closes the other one


class DataLinkProxies:
    """Proxies in front of the servers of a job, which announce ``ANNOUNCED``: there, at the ports that they listen at.

    Args:
        servers: returns their present processes.
    """

    def __init__(self, servers: Callable[[], Sequence[psutil.Process]]) -> None:
        self._servers = servers
        self._proxies: dict[int, LinkProxy] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="data link proxies", daemon=True)
        self._thread.start()

    def cut_one(self, chance: random.Random, span: tuple[float, float]) -> str | None:
        """Cut all links of one live server, and wait until they are restored."""
        ports = sorted({port for process in self._servers() for port in _listening_at(process)} & self._proxies.keys())
        if not ports:
            return None
        port, seconds = chance.choice(ports), chance.uniform(*span)
        self._proxies[port].cut(seconds)
        self._closing.wait(seconds)
        return f"server at {port}, {seconds:.1f} s"

    def close(self) -> None:
        """Stop following the servers, and close every proxy."""
        self._closing.set()
        self._thread.join()
        for proxy in self._proxies.values():
            proxy.close()

    def _follow(self) -> None:
        while not self._closing.wait(FOLLOW_S):
            for process in self._servers():
                for port in _listening_at(process) - self._proxies.keys():
                    self._proxies[port] = LinkProxy(("127.0.0.1", port), (ANNOUNCED, port))


def _listening_at(process: psutil.Process) -> set[int]:
    try:
        found = process.net_connections(kind="tcp4")
    except psutil.Error:
        return set()
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN and each.laddr.ip != ANNOUNCED}


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
