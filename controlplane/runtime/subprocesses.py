"""Runs long or expensive work as a management command in a low-priority subprocess.

The calling thread only waits, so that ingest, scheduling and rescue keep their interpreter free.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Final

MANAGE: Final = ("-m", "controlplane.manage")
HOME: Final = str(Path(__file__).resolve().parents[2])
NICENESS: Final = 15
LOOK_S: Final = 0.2
TO_END_S: Final = 1.0
"""Time limit after SIGTERM, after which the process is killed."""


class BrokenOff(RuntimeError):
    """The process was ended before it had finished."""


class Failed(RuntimeError):
    """The process ended with an error; the message is the last line of its output."""


def run_in_subprocess(arguments: Sequence[str], stopping: Event, most_s: float = math.inf) -> str:
    """Run ``manage.py`` with these arguments; returns its output.

    Raises:
        BrokenOff: if it takes longer than ``most_s``, or ``stopping`` is set meanwhile.
        Failed: if its exit code is not 0.
    """
    process = subprocess.Popen(
        [sys.executable, *MANAGE, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [HOME, os.environ.get("PYTHONPATH")]))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_yield_to_others,
        text=True,
    )
    deadline = time.monotonic() + most_s
    while True:
        try:
            out, output = process.communicate(timeout=LOOK_S)
        except subprocess.TimeoutExpired:
            if not stopping.is_set() and time.monotonic() < deadline:
                continue
            _end(process)
            raise BrokenOff(f"it took more than {most_s:.0f} s and was stopped") from None
        if process.returncode:
            raise Failed(_last_line(output))
        return out


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=TO_END_S)
        return
    process.kill()
    process.communicate()


def _yield_to_others() -> None:
    os.nice(NICENESS)


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].removeprefix("CommandError: ") if lines else "its process ended without any output"
