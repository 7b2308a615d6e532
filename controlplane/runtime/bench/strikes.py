"""The faults of ``bench chaos``: what is done to which process or link, chosen by a seed."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

BRIEF_S: Final = (0.5, 3.0)
"""Shorter than the silence after which a process is lost."""

LONG_S: Final = (5.0, 8.0)
"""Longer than that."""

ANNOUNCED: Final = "127.0.0.2"
"""Where servers are said to be: the same ports, of which wires lead to where they are."""

FOLLOW_S: Final = 0.1

Strike = Callable[[], str | None]
"""Does something to somebody: to whom, or None where nobody was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault."""

    kind: str
    strike: Strike
    weight: int = 1
    waits: bool = False
    """Its strike takes as long as the fault lasts; nobody can do anything before."""


class Wire:
    """A TCP proxy in front of ``target``, whose connections can be cut, and cannot be made while it is."""

    def __init__(self, target: tuple[str, int], at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = threading.Event()
        self._listening = socket.create_server(at, backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def cut(self, seconds: float) -> None:
        """End every connection, and let none be made for so long."""
        self._cut.set()
        with self._lock:
            for each in list(self._open):
                _end(each)
        timer = threading.Timer(seconds, self._cut.clear)
        timer.daemon = True
        timer.start()

    def close(self) -> None:
        """No longer listen, and end what there is."""
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


class DataWires:
    """Wires in front of the servers of a job, which announce ``ANNOUNCED``: there, at the ports that they listen at.

    Args:
        servers: their processes as they are now.
    """

    def __init__(self, servers: Callable[[], Sequence[psutil.Process]]) -> None:
        self._servers = servers
        self._wires: dict[int, Wire] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="data-wires", daemon=True)
        self._thread.start()

    def cut_one(self, chance: random.Random, span: tuple[float, float]) -> str | None:
        """Cut all links of one server that lives, and wait until they are back."""
        ports = sorted({port for process in self._servers() for port in _listening_at(process)} & self._wires.keys())
        if not ports:
            return None
        port, seconds = chance.choice(ports), chance.uniform(*span)
        self._wires[port].cut(seconds)
        self._closing.wait(seconds)
        return f"server at {port}, {seconds:.1f} s"

    def close(self) -> None:
        """No longer follow the servers, and end every wire."""
        self._closing.set()
        self._thread.join()
        for wire in self._wires.values():
            wire.close()

    def _follow(self) -> None:
        while not self._closing.wait(FOLLOW_S):
            for process in self._servers():
                for port in _listening_at(process) - self._wires.keys():
                    self._wires[port] = Wire(("127.0.0.1", port), (ANNOUNCED, port))


def _listening_at(process: psutil.Process) -> set[int]:
    try:
        found = process.net_connections(kind="tcp4")
    except psutil.Error:
        return set()
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN and each.laddr.ip != ANNOUNCED}


def processes_of(job: int, roles: str) -> list[psutil.Process]:
    """The live processes of that job below this one, of these roles (``w``, ``s``)."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            name = process.name()
            mine = name.startswith("pl ") and name[3:4] in roles and name.endswith(f" job {job}")
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append((name, process))
    return [process for _, process in sorted(found, key=lambda each: each[0])]


def kill_one(candidates: Callable[[], Sequence[psutil.Process]], chance: random.Random) -> Strike:
    """SIGKILL one of them."""

    def strike() -> str | None:
        return _to_one(candidates(), chance, lambda process: os.kill(process.pid, signal.SIGKILL))

    return strike


def stop_one(
    candidates: Callable[[], Sequence[psutil.Process]], chance: random.Random, span: tuple[float, float]
) -> Strike:
    """SIGSTOP one of them, and SIGCONT after a while."""

    def strike() -> str | None:
        return _to_one(candidates(), chance, lambda process: _stop(process.pid, chance.uniform(*span)))

    return strike


def cut(wire: Wire, chance: random.Random, span: tuple[float, float]) -> Strike:
    """Cut a link for a while."""

    def strike() -> str | None:
        seconds = chance.uniform(*span)
        wire.cut(seconds)
        return f"{seconds:.1f} s"

    return strike


def cut_data(wires: DataWires, chance: random.Random, span: tuple[float, float]) -> Strike:
    """Cut the links of one server to everybody, and wait until they are back."""
    return lambda: wires.cut_one(chance, span)


def choose(faults: Sequence[Fault], chance: random.Random) -> Fault:
    """One of them, by their weights."""
    return chance.choices(faults, weights=[fault.weight for fault in faults])[0]


def _to_one(
    processes: Sequence[psutil.Process], chance: random.Random, act: Callable[[psutil.Process], None]
) -> str | None:
    if not processes:
        return None
    process = chance.choice(list(processes))
    try:
        name: str = process.name()
        act(process)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None
    return name


def _stop(pid: int, seconds: float) -> None:
    created = psutil.Process(pid).create_time()
    os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            if psutil.Process(pid).create_time() == created:
                os.kill(pid, signal.SIGCONT)

    timer = threading.Timer(seconds, go_on)
    timer.daemon = True
    timer.start()


def now() -> float:
    """The clock that times to go on are measured with."""
    return time.monotonic()


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
