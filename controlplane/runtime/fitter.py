"""Fits predictors in a separate process, one after another, with low priority.

A fit would share the interpreter with ingest in the history process, and the 200 MB of torch would stay there. The
process starts with the first fit and ends when none has come for a while. Requests and results are lines of text.

``python -m controlplane.runtime.fitter`` is that process: it needs neither settings nor a database.
"""

import contextlib
import os
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import IO, Final

import msgspec

from controlplane.core import sharing
from controlplane.core.commands import TrainPredictor
from controlplane.core.events import PredictorTrained
from controlplane.policies.registry import resolve
from controlplane.runtime.subprocesses import HOME, NICENESS, Failed

COMMAND: Final = (sys.executable, "-m", "controlplane.runtime.fitter")
IDLE_S: Final = 30.0
"""A restart costs a second of CPU, an idle process 200 MB."""

MOST_S: Final = 300.0
"""Time limit of a fit, after which its process is killed."""

ERROR: Final = "!"
"""First character of the line of a failed fit."""

_requests: msgspec.msgpack.Decoder[TrainPredictor] = msgspec.msgpack.Decoder(TrainPredictor)
_answers: msgspec.msgpack.Decoder[PredictorTrained] = msgspec.msgpack.Decoder(PredictorTrained)


def request_of(command: TrainPredictor) -> str:
    """The command as one line."""
    return b64encode(msgspec.msgpack.encode(command)).decode()


class Fitter:
    """The interface to the process, which is started when needed."""

    def __init__(self, command: Sequence[str] = COMMAND, *, idle_s: float = IDLE_S, most_s: float = MOST_S) -> None:
        self._command, self._idle_s, self._most_s = command, idle_s, most_s
        self._one_at_a_time = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._used = 0.0

    @property
    def pid(self) -> int | None:
        """The pid of the process, if it runs."""
        return self._process.pid if self._process is not None else None

    def fit(self, request: str) -> PredictorTrained:
        """The result of the fit in ``request``; waits for earlier fits, then for this one.

        Raises:
            Failed: if it could not be done, took too long, or its process ended.
        """
        with self._one_at_a_time:
            reply = self._ask(request)
            self._used = time.monotonic()
            ending = threading.Timer(self._idle_s, self._end_if_idle)
            ending.daemon = True
            ending.start()
        if reply.startswith(ERROR):
            raise Failed(reply.removeprefix(ERROR))
        return _answers.decode(b64decode(reply))

    def _ask(self, request: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [HOME, os.environ.get("PYTHONPATH")]))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        limit = threading.Timer(self._most_s, process.kill)
        limit.daemon = True
        limit.start()
        reply = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
            reply = process.stdout.readline().rstrip("\n")
        limit.cancel()
        if not reply:
            raise Failed(f"the predictor-fitting process ended with exit code {self._end()} without a result")
        return reply

    def _end_if_idle(self) -> None:
        with self._one_at_a_time:
            if time.monotonic() - self._used >= self._idle_s:
                self._end()

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # ends the process
        code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        return code


def answer(requests: IO[str], answers: IO[str]) -> None:
    """The main loop of the process: handle every request until the input ends."""
    for request in requests:
        try:
            fitted = sharing.fit(_requests.decode(b64decode(request)), resolve)
            reply = b64encode(msgspec.msgpack.encode(fitted)).decode()
        except Exception as error:  # any: the next request may be of another job
            reply = f"{ERROR}{type(error).__name__}: {error}".replace("\n", " ")
        answers.write(f"{reply}\n")
        answers.flush()


if __name__ == "__main__":
    os.nice(NICENESS)
    answer(sys.stdin, sys.stdout)
