"""The agent's side of a machine test: starts the test process, enforces its time limit, and forwards its results."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from controlplane.protocol.base import Value
from controlplane.protocol.machine_tests import (
    LISTEN_LIMIT_S,
    TEST_LIMIT_S,
    Listening,
    ListenOrder,
    MachineTested,
    MachineTestOrder,
    PreflightAnswer,
    PreflightOrder,
)
from workers.setup import Setup
from workers.spawner.client import SECRETS

MOST_LISTENING: Final = 4
"""Maximum number of other machines' tests for which this one is a far end at a time."""

MOST_KNOWN: Final = 100
"""Number of remembered orders: an order that is repeated after a reconnect is ignored."""

FIRST: Final = 1
COMMAND: Final = (sys.executable, "-m", "workers.preflight")
log = structlog.get_logger("preflight")

Key = tuple[type[PreflightOrder], int]
"""The identity of an order: a machine is a far end of a test only once."""

_decoder: msgspec.json.Decoder[PreflightAnswer] = msgspec.json.Decoder(PreflightAnswer)


class Task(Value, frozen=True, kw_only=True):
    """The task of the process."""

    order: PreflightOrder
    setup: Setup


class Preflight:
    """The ordered tests. Call ``begin`` on the main thread: on Linux the processes end with it.

    Args:
        setup: of the agent's processes.
        answer: called with each message, on a separate thread; the caller assigns the number.
        limits_s: time limits of a test and of a far end.
    """

    def __init__(
        self,
        setup: Setup,
        answer: Callable[[PreflightAnswer], None],
        *,
        limits_s: tuple[float, float] = (TEST_LIMIT_S, LISTEN_LIMIT_S),
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._setup, self._answer, self._command = setup, answer, command
        self._test_s, self._listen_s = limits_s
        self._lock = threading.Lock()
        self._known: dict[Key, None] = {}
        self._running: dict[Key, subprocess.Popen[bytes]] = {}

    @property
    def testing(self) -> list[int]:
        """Tests of this machine in progress."""
        with self._lock:
            return [test for kind, test in self._running if kind is MachineTestOrder]

    def begin(self, order: PreflightOrder) -> None:
        """Start the test, unless it is known."""
        key: Key = (type(order), order.test)
        with self._lock:
            if key in self._known:
                return
            self._known[key] = None
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            refusal = self._refusal(order)
        if refusal:
            self._answer(_failed(order, refusal))
            return
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), start_new_session=True
            )
        except OSError as error:
            self._answer(_failed(order, f"its process cannot be started: {error}"))
            return
        with self._lock:
            self._running[key] = process
        log.info(f"test {order.test}: {'listening' if isinstance(order, ListenOrder) else 'testing this machine'}")
        threading.Thread(target=self._attend, args=(order, process), name="preflight", daemon=True).start()

    def close(self) -> None:
        """End all tests."""
        with self._lock:
            processes = list(self._running.values())
        for process in processes:
            process.kill()
            process.wait()

    def _refusal(self, order: PreflightOrder) -> str:
        others = [test for kind, test in self._running if kind is type(order)]
        if isinstance(order, MachineTestOrder) and others:
            return f"test {others[0]} runs on this machine"
        if isinstance(order, ListenOrder) and len(others) >= MOST_LISTENING:
            return f"the machine is the far end of {len(others)} tests already"
        return ""

    def _attend(self, order: PreflightOrder, process: subprocess.Popen[bytes]) -> None:
        limit_s = self._test_s if isinstance(order, MachineTestOrder) else self._listen_s
        overdue = threading.Event()

        def end() -> None:
            overdue.set()
            process.kill()

        timer = threading.Timer(limit_s, end)
        timer.daemon = True
        timer.start()
        answered = False
        assert process.stdin is not None
        assert process.stdout is not None
        with process, contextlib.suppress(OSError, msgspec.DecodeError):
            process.stdin.write(msgspec.msgpack.encode(Task(order=order, setup=self._setup)))
            process.stdin.close()
            for line in process.stdout:
                self._answer(_decoder.decode(line))
                answered = True
        timer.cancel()
        if not answered:
            self._answer(_failed(order, _why(process.returncode, limit_s if overdue.is_set() else None)))
        with self._lock:
            del self._running[type(order), order.test]


def _failed(order: PreflightOrder, reason: str) -> PreflightAnswer:
    kind = MachineTested if isinstance(order, MachineTestOrder) else Listening
    return kind(number=FIRST, test=order.test, failure=reason)


def _why(status: int, limit_s: float | None) -> str:
    if limit_s is not None:
        return f"it was ended after {limit_s:g} s"
    if status == -signal.SIGKILL:
        return "its process was killed: the machine may lack memory"
    return f"its process ended with status {status}: see the agent's log"


def _environment() -> dict[str, str]:
    """The agent's environment, without secrets, in which Paceline can be imported."""
    kept = {key: value for key, value in os.environ.items() if key not in SECRETS}
    home = str(Path(__file__).resolve().parents[2])
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [home, kept.get("PYTHONPATH")]))
    return kept
