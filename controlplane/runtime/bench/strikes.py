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

Strike = Callable[[], str | None]
"""Does something to somebody: to whom, or None where nobody was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault."""

    kind: str
    strike: Strike
    weight: int = 1


class Wire:
    """A TCP proxy in front of the control plane, whose connections can be cut, and cannot be made while it is."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
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


def processes_of(job: int, roles: str) -> list[psutil.Process]:
    """The live processes of that job on this machine, of these roles (``w``, ``s``)."""
    found = []
    for process in psutil.process_iter(["name", "status"]):
        name = process.info["name"] or ""
        mine = name.startswith("pl ") and name[3:4] in roles and name.endswith(f" job {job}")
        if mine and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return sorted(found, key=lambda process: process.info["name"])


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
