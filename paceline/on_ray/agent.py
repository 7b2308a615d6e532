"""One agent on one Ray node: an actor that runs ``paceline join`` and restarts it when it ends."""

import os
import subprocess
import sys
import threading
from collections import deque
from typing import Any, Final

import msgspec
import ray
import ray.util

from paceline.cli.places import environment
from paceline.identity import VARIABLES
from paceline.on_ray.plan import Plan

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 15.0
"""Delay between an agent's end and its next start; doubled each time until it has connected."""

GRACE_S: Final = 20.0
"""Time in which an agent ends its workers; it gives them half of it."""

CONNECTED: Final = "is connected to"
TAIL: Final = 20


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """One agent as its actor sees it."""

    node: str
    host: str
    pid: int
    state: str
    """``starting``, ``connected``, ``ended`` (and restarted soon)."""
    starts: int
    last: str
    """Its last line of output, where it is not connected."""


class HostedAgent:
    """The actor. Where Ray restarts it on another node, the agent joins from there under the same name."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._plan, self._index = plan, index
        self._node = ray.get_runtime_context().get_node_id()
        self._host = ray.util.get_node_ip_address()
        self._state, self._starts = "starting", 0
        self._said: deque[str] = deque(maxlen=TAIL)
        self._process: subprocess.Popen[str] | None = None
        self._ending = threading.Event()
        # The process lives as long as the thread that started it.
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()

    def sight(self) -> dict[str, Any]:
        """The agent's state."""
        process = self._process
        seen = Sight(
            node=self._node,
            host=self._host,
            pid=process.pid if process is not None else 0,
            state=self._state,
            starts=self._starts,
            last="" if self._state == "connected" or not self._said else self._said[-1],
        )
        found: dict[str, Any] = msgspec.to_builtins(seen)
        return found

    def end(self) -> None:
        """Have the agent end its workers and leave; returns when it has."""
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            self._thread.join(GRACE_S)
            process.kill()

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._ending.is_set():
            self._state, self._starts = "starting", self._starts + 1
            connected = self._live()
            self._state = "ended"
            pause = FIRST_PAUSE_S if connected else min(2 * pause, LONGEST_PAUSE_S)
            self._ending.wait(pause)

    def _live(self) -> bool:
        """Run the agent once; whether it was connected."""
        join = self._plan.command(self._index, host=self._host, node=self._node)
        command = [sys.executable, "-m", "paceline.on_ray.bound", str(os.getpid()), *join]
        launched = {name for _, *ranks in VARIABLES for name in ranks}  # set by the user who started Ray here
        known = {name: value for name, value in os.environ.items() if name not in launched}
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(known),
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        if self._ending.is_set():
            process.terminate()
        try:
            process.stdin.write(f"{self._plan.enrolment}\n")
            process.stdin.close()
        except OSError:
            pass  # it has ended, and says why
        connected = False
        for line in process.stdout:
            sys.stdout.write(line)  # to Ray's log of this actor
            self._said.append(line.rstrip())
            if CONNECTED in line and not connected:
                connected, self._state = True, "connected"
        process.wait()
        return connected
