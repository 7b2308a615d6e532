"""Services as forks of one process that has imported their modules (``fork_server``).

Forking takes milliseconds and shares memory; starting a service as a program takes it seconds of imports.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Final

import msgspec

from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.fork_server import ANSWERS, LARGEST, Ended, Forked, Ready, Start
from controlplane.runtime.embedded.processes import Service, start_service, streams

COMMAND: Final = [sys.executable, "-m", "controlplane.runtime.embedded.fork_server"]
NAME: Final = "fork server"
ANSWER_S: Final = 30.0
COMM: Final = 15
"""The length of a name that Linux keeps of a process, in bytes."""


class ForkServerGone(CannotStart):
    """The fork server has ended, or does not answer. Programs can still be started."""


class ForkServer:
    """A fork server and what it has forked. The environment of its services is its own."""

    def __init__(self, *, environment: Mapping[str, str], log: Path, folder: Path) -> None:
        self._environment, self._log, self._folder = environment, log, folder
        self._lock = RLock()
        self._connection: socket.socket | None = None
        self._ready = False
        self._children: dict[int, ForkedProcess] = {}
        self._unclaimed: list[ForkedProcess] = []

    def start(self) -> Service:
        """Start the process, also in place of one that has ended.

        Raises:
            CannotStart: if that is not possible.
        """
        with self._lock:
            self._lose()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                service = start_service(
                    NAME,
                    [*COMMAND, str(theirs.fileno())],
                    log=self._log,
                    environment=self._environment,
                    folder=self._folder,
                    pass_fds=[theirs.fileno()],
                )
            self._connection = ours
            return service

    def close(self) -> None:
        """Let it end, and with it everything that it has forked."""
        with self._lock:
            self._lose()

    def is_ready(self) -> bool:
        """Whether it has imported everything."""
        self.hear(0.0)
        return self._ready

    def start_service(self, name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> Service:
        """Fork a service whose ``command`` is ``python -m MODULE ...``.

        Modules that read the environment when they are imported, such as the settings, have read the server's.

        Raises:
            CannotStart: if its log cannot be written.
            ForkServerGone: if the fork server has ended; one that does not answer is ended.
        """
        _, _, module, *arguments = command
        request = Start(
            name=f"paceline {name}"[:COMM], module=module, arguments=arguments, environment=dict(environment)
        )
        with self._lock, streams(name, log) as files:
            log_begin = os.fstat(files[1]).st_size
            if self._connection is not None:
                try:
                    socket.send_fds(self._connection, [msgspec.json.encode(request)], files)
                except OSError:
                    self._lose()
            process = self._answer(name)
        process.args = command
        return Service(name=name, process=process, log=log, log_begin=log_begin)

    def hear(self, seconds: float) -> None:
        """Take the messages that have arrived, waiting for the first of them for up to ``seconds``."""
        with self._lock:
            while self._connection is not None and select.select([self._connection], [], [], max(0.0, seconds))[0]:
                seconds = 0.0
                try:
                    received = self._connection.recv(LARGEST)
                except OSError:
                    received = b""
                if received:
                    self._take(received)
                else:
                    self._lose()

    def _answer(self, name: str) -> "ForkedProcess":
        deadline = time.monotonic() + ANSWER_S
        while not self._unclaimed:
            if self._connection is None or time.monotonic() > deadline:
                self._lose()  # a late answer would be taken for that of another request
                raise ForkServerGone(f"{name}: the {NAME} has ended; its log: {self._log}")
            self.hear(deadline - time.monotonic())
        return self._unclaimed.pop()

    def _take(self, received: bytes) -> None:
        match ANSWERS.decode(received):
            case Ready():
                self._ready = True
            case Forked(pid=pid):
                self._children[pid] = ForkedProcess(self, pid)
                self._unclaimed.append(self._children[pid])
            case Ended(pid=pid, status=status):
                self._children.pop(pid).returncode = status

    def _lose(self) -> None:
        """The server has ended: the kernel has killed what it had forked."""
        if self._connection is not None:
            self._connection.close()
        self._connection, self._ready = None, False
        for child in self._children.values():
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.returncode = -signal.SIGKILL
        self._children.clear()
        self._unclaimed.clear()


class ForkedProcess:
    """A forked process. Its parent, the server, reports its end."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid
        self.args: Sequence[str] = ()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Look up ``returncode``."""
        self._server.hear(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left = 1.0 if deadline is None else deadline - time.monotonic()
            if left <= 0.0:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            self._server.hear(min(left, 1.0))
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)
