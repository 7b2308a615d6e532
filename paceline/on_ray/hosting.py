"""Runs a command as long as this process lives: it is restarted whenever it ends or cannot be started."""

import logging
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 15.0
"""Delay between an agent's end and its next start; doubled each time until it has connected."""

GRACE_S: Final = 20.0
"""Time in which an agent ends its workers; the workers get half of it."""

CONNECTED: Final = "is connected to"
TAIL: Final = 20

log = logging.getLogger("paceline")


class Hosting:
    """Runs one agent in a separate thread; ``secret`` is the first line of its input."""

    def __init__(
        self, command: Sequence[str], secret: str, environment: Mapping[str, str], *, pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._command, self._secret, self._environment = list(command), secret, dict(environment)
        self._pause_s = pause_s
        self._message: deque[str] = deque(maxlen=TAIL)
        self._process: subprocess.Popen[str] | None = None
        self._ending = threading.Event()
        self.state = "starting"
        """``starting``, ``connected``, ``ended`` (and restarted soon)."""
        self.starts = 0
        # The kernel ties the process to the thread that started it.
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Id of its last process; 0: there was none."""
        process = self._process
        return process.pid if process is not None else 0

    @property
    def last(self) -> str:
        """Its last line of output, if it is not connected."""
        return "" if self.state == "connected" or not self._message else self._message[-1]

    def end(self) -> None:
        """End the agent with its workers; returns when it has left."""
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            self._thread.join(GRACE_S)
            process.kill()

    def _run(self) -> None:
        pause = self._pause_s
        while not self._ending.is_set():
            self.state, self.starts = "starting", self.starts + 1
            connected = False
            try:
                connected = self._live()
            except OSError as error:  # out of memory, processes or files on this node: retried
                self._message.append(f"{self._command[0]} cannot be started: {error}")
                log.warning("paceline: %s", self._message[-1])
            self.state = "ended"
            pause = self._pause_s if connected else min(2 * pause, LONGEST_PAUSE_S)
            self._ending.wait(pause)

    def _live(self) -> bool:
        """Run the agent once; return whether it was connected."""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environment,
            start_new_session=True,
        ) as process:
            self._process = process
            assert process.stdin is not None
            assert process.stdout is not None
            if self._ending.is_set():
                process.terminate()
            try:
                process.stdin.write(f"{self._secret}\n")
                process.stdin.close()
            except OSError:
                pass  # it has ended, and its output has the reason
            connected = False
            for line in process.stdout:
                sys.stdout.write(line)  # to Ray's log of this actor
                self._message.append(line.rstrip())
                if CONNECTED in line and not connected:
                    connected, self.state = True, "connected"
        return connected
