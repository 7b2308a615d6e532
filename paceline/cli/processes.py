"""Runs a command as if it was started directly: with its terminal, its signals and its exit code."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from paceline.cli.errors import Refusal

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NO_COMMAND, NOT_EXECUTABLE = 127, 126
"""Exit codes of shells: the command is not found, or cannot be run."""


def check_found(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Check that a command can be started, before a job is submitted for it.

    Raises:
        Refusal: if it is not found in that environment's ``PATH``, or may not be executed.
    """
    path = environment.get("PATH", os.defpath)
    if shutil.which(command[0], os.F_OK, path) is None:
        raise Refusal(f"{command[0]}: there is no such command", NO_COMMAND)
    if shutil.which(command[0], path=path) is None:
        raise Refusal(f"{command[0]}: cannot be run (Permission denied)", NOT_EXECUTABLE)


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end; return its exit code, or 128 plus the signal that ended it.

    Raises:
        Refusal: if it cannot be started.
    """
    with _blocked():
        try:
            process = subprocess.Popen(command, env=dict(environment), preexec_fn=_unblock)
        except FileNotFoundError:
            raise Refusal(f"{command[0]}: there is no such command", NO_COMMAND) from None
        except OSError as error:
            raise Refusal(f"{command[0]}: cannot be run ({error.strerror})", NOT_EXECUTABLE) from None
        before = {number: signal.signal(number, _pass_on(process)) for number in PASSED_ON}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def ending(code: int) -> str:
    """The meaning of an exit code; empty if there is nothing to add."""
    if code <= 128:
        return ""
    with suppress(ValueError):
        return f"ended by {signal.Signals(code - 128).name}"
    return ""


def _pass_on(process: "subprocess.Popen[bytes]") -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGQUIT) and _typed():
            return  # the terminal has sent the signal to the command as well
        with suppress(ProcessLookupError):
            process.send_signal(number)

    return handle


def _typed() -> bool:
    """Whether this process is in the foreground of a terminal, which sends Ctrl-C to the whole foreground group."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _blocked() -> Iterator[None]:
    """Block signals between the command's start and the installation of the handlers that forward signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
