"""The agent's side of its spawner: starts it, sends to it, and receives from it on a thread."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import ProcessOrder
from workers.relay.framing import VARIABLE
from workers.setup import Setup
from workers.spawner.messages import Channel, FromSpawner, Prepare, Start, Stop

ENTRY = "workers.processes:run_process"
MODULES = ("workers.spawner.warmth",)
EXIT_S = 5.0
SECRETS = ("PACELINE_TOKEN", "PACELINE_API_TOKEN")
"""Environment variables that processes must not inherit."""
log = structlog.get_logger("spawner")


@dataclass(frozen=True, slots=True)
class Lost:
    """The spawner has ended, and all its processes with it."""

    status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """Modules that a spawner imports and runs."""

    setup: Setup
    entry: str = ENTRY
    modules: Sequence[str] = MODULES
    json_logs: bool = False


class Spawner:
    """A running spawner. Create it on the main thread: it is killed when the thread that created it ends."""

    def __init__(
        self, kit: Kit, on_message: Callable[[FromSpawner | Lost], None], *, relay: Path | None = None
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workers.spawner", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(relay),
            )
        self._on_message = on_message
        self._channel: Channel[FromSpawner] = Channel(ours, FromSpawner)
        self._thread = threading.Thread(target=self._listen, name="spawner", daemon=True)
        self._send(Prepare(entry=kit.entry, modules=list(kit.modules), setup=kit.setup, json_logs=kit.json_logs))
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the spawner itself."""
        return self._process.pid

    def start(self, order: ProcessOrder) -> None:
        """Fork the process of ``order``; ``Started`` and finally ``Ended`` are received for it."""
        self._send(Start(order=order))

    def stop(self, process: ProcessName, *, grace_s: float) -> None:
        """End a process, by force after ``grace_s``."""
        self._send(Stop(process=process, grace_s=grace_s))

    def close(self) -> None:
        """End the spawner, even during its imports, and all its processes."""
        self._channel.close()
        self._process.terminate()
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(EXIT_S)

    def _send(self, message: Prepare | Start | Stop) -> None:
        with contextlib.suppress(OSError):  # it has ended: the listening thread reports that
            self._channel.send(message)

    def _listen(self) -> None:
        try:
            while True:
                for message in self._channel.receive():
                    self._on_message(message)
        except (EOFError, OSError):
            pass
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_S)
        self._on_message(Lost(self._process.returncode))


def _environment(relay: Path | None) -> dict[str, str]:
    """The agent's environment, without secrets, in which Paceline can be imported, and with the relay's path.

    One thread per numerical library: thread pools created on import do not survive a fork. Processes set their own
    number of torch threads afterwards.
    """
    kept = {key: value for key, value in os.environ.items() if key not in (*SECRETS, VARIABLE)}
    if relay is not None:
        kept[VARIABLE] = str(relay)
    home = str(Path(__file__).resolve().parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [home, kept.get("PYTHONPATH")]))
    return kept | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
