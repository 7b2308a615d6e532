"""A process that imports the control plane's modules once and forks the services: without it, each imports them itself.

The parent starts ``python -m controlplane.runtime.embedded.fork_server FD``, where FD is one end of a socket pair, and
sends requests (``Start``) with two open files, the input and the log of the new process. The answers are ``Ready``,
then ``Forked`` for each request and ``Ended`` for each process that has ended. It stays the parent of what it forks,
and the kernel kills that when it ends.
"""

import gc
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from controlplane.runtime.embedded.processes import dies_with

PRELOADED: Final = (
    "controlplane.config.celery",
    "controlplane.config.urls",
    "controlplane.runtime.tasks",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "kombu.transport.redis",
    "uvicorn.main",
    "uvicorn.loops.uvloop",
    "controlplane.gateway.guarded",
    "controlplane.runtime.upgrading",
    "controlplane.runtime.management.commands.migrate",
)
"""What services import, besides Django's applications."""

LARGEST: Final = 256 * 1024
"""Of a message, in bytes."""


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Run a module as ``python -m`` would."""

    name: str
    """Shown by ``ps -o comm`` and ``top``."""
    module: str
    arguments: list[str]
    environment: dict[str, str]


STARTS: Final = msgspec.json.Decoder(Start)


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Everything is imported."""


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """The process of the next request."""

    pid: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A process has ended, with a status as in ``Popen.returncode``."""

    pid: int
    status: int


ANSWERS: Final = msgspec.json.Decoder(Ready | Forked | Ended)


def main(arguments: Sequence[str]) -> None:
    """Serve until the parent closes its end; in a forked process, run the requested module."""
    _show("fork server")
    _preload()
    with socket.socket(fileno=int(arguments[1])) as connection:
        request = _serve(connection)
    if request is not None:
        _run(request)


def _preload() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")
    django.setup()
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()  # the collector of a forked process does not write to shared pages


def _serve(connection: socket.socket) -> Start | None:
    """Return None at the end of the parent, or the request in a forked process."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    _send(connection, Ready())
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if wake in ready:
            os.read(wake, 4096)
            for ended in _ended():
                _send(connection, ended)
        if connection.fileno() in ready:
            message, files, *_ = socket.recv_fds(connection, LARGEST, 2)
            if not message:
                return None
            if (pid := _fork(files)) == 0:
                selector.close()
                for descriptor in (wake, woken):
                    os.close(descriptor)
                return STARTS.decode(message)
            _send(connection, Forked(pid))


def _fork(files: Sequence[int]) -> int:
    """Fork; the new process has its own session, signals as after an exec, and the files as input and output."""
    if (count := threading.active_count()) > 1:
        raise RuntimeError(f"{count - 1} threads are running: found one besides the main thread, expected none to fork")
    tie_to_this_process = dies_with(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        tie_to_this_process()
        given, log = files
        os.dup2(given, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
    for descriptor in files:
        os.close(descriptor)
    return pid


def _ended() -> list[Ended]:
    ended = []
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(Ended(found[0], os.waitstatus_to_exitcode(found[1])))
    return ended


def _send(connection: socket.socket, message: msgspec.Struct) -> None:
    with suppress(OSError):  # the parent has ended
        connection.send(msgspec.json.encode(message))


def _run(request: Start) -> None:
    os.environ.clear()
    os.environ.update(request.environment)
    _show(request.name)
    sys.argv = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _show(name: str) -> None:
    """Show the name in ``ps -o comm`` and ``top``, and as the process's in psutil."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    main(sys.argv)
