"""One child process: started so that it cannot outlive its parent, logged to a file, ended with a deadline.

On Linux the kernel kills the child when the thread that started it ends for any reason; elsewhere (no
PR_SET_PDEATHSIG) only a normal shutdown of the parent ends it. Children have their own session, so that a
Ctrl-C at the terminal reaches the parent alone, which then ends them in order.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from controlplane.runtime.embedded.errors import CannotStart

PR_SET_PDEATHSIG = 1
TAIL_LINES = 12
FULL_BYTES = 64 * 1024
"""With less free space than this, nothing more is written to a log."""

COMMAND_S = 60.0
STOP_S = 8.0
"""How long a service may take to end by itself: Celery finishes its tasks, uvicorn its requests."""


class Process(Protocol):
    """What a service needs of :class:`subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its number, which is also that of its process group."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, or the negative number of the signal that ended it; None until that was looked up."""

    def poll(self) -> int | None:
        """Look up ``returncode``."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: after ``timeout`` seconds.
        """

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A running process and its log file."""

    name: str
    process: Process
    log: Path
    log_begin: int
    """Size of the log when this process started: an earlier one's output ends there."""

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def ask_to_stop(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if not self.is_over():
            self.process.send_signal(signal.SIGTERM)

    def await_stop(self, seconds: float) -> None:
        """Wait for its end for at most ``seconds``, then kill it and all its children."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=max(0.0, seconds))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def check(self) -> None:
        """Check that it runs.

        Raises:
            CannotStart: with its exit status and the end of its log.
        """
        if self.is_over():
            raise CannotStart(f"{self.name} {self.ending()}. The end of its log, {self.log}:\n{self.tail()}")

    def ending(self) -> str:
        """How it ended, as text after its name; only after its end."""
        status = self.process.wait()
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"

    def tail(self) -> str:
        """The last lines that it wrote into its log, indented."""
        lines = self.log.read_bytes()[self.log_begin :].decode(errors="replace").splitlines()[-TAIL_LINES:]
        if shutil.disk_usage(self.log.parent).free < FULL_BYTES:
            lines.append(f"({'' if lines else 'no output: '}there is no space left in {self.log.parent})")
        return "\n".join(f"    {line}" for line in lines) or "    (no output)"


def start_service(
    name: str,
    command: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: bytes = b"",
    pass_fds: Sequence[int] = (),
) -> Service:
    """Start ``command`` with its output in ``log``; ``stdin`` is its whole input, for secrets.

    Raises:
        CannotStart: if its log cannot be written, or the program does not exist or may not be run.
    """
    with streams(name, log, stdin) as (given, output):
        log_begin = os.fstat(output).st_size
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=folder,
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=dies_with(os.getpid()),
            )
        except OSError as error:
            raise CannotStart(f"{name}: cannot run {command[0]} ({error.strerror}).") from None
    return Service(name=name, process=process, log=log, log_begin=log_begin)


@contextmanager
def streams(name: str, log: Path, stdin: bytes = b"") -> Iterator[tuple[int, int]]:
    """File descriptors of the input and the output of a process that is started in the block.

    Raises:
        CannotStart: if the log cannot be written.
    """
    opened = _open_log(name, log)
    given_in, given_out = os.pipe()
    try:
        with opened as output:
            yield given_in, output.fileno()
        os.write(given_out, stdin)
    finally:
        os.close(given_in)
        os.close(given_out)


def _open_log(name: str, log: Path) -> BinaryIO:
    try:
        return log.open("ab")
    except OSError as error:
        cure = "make it and its folder writable, or set PACELINE_DATA_DIR to another data folder"
        raise CannotStart(f"{name}: cannot write its log {log} ({error.strerror}): {cure}.") from None


def run_command(
    name: str,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    stdin: bytes = b"",
    seconds: float = COMMAND_S,
) -> str:
    """Run a command to its end and return its output, which is not logged.

    Raises:
        CannotStart: if it fails, with its output.
    """
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,
        preexec_fn=dies_with(os.getpid()),
        timeout=seconds,
        check=False,
    )
    if done.returncode:
        output = done.stderr.decode(errors="replace").strip() or "no output"
        raise CannotStart(f"{name} ended with exit code {done.returncode}: {output}")
    return done.stdout.decode()


def stop_services(services: Sequence[Service], *, seconds: float = STOP_S) -> None:
    """End all services in parallel; services that do not end in time are killed."""
    for service in services:
        service.ask_to_stop()
    deadline = time.monotonic() + seconds
    for service in services:
        service.await_stop(deadline - time.monotonic())


def dies_with(parent: int) -> Callable[[], None]:
    """The function that a child runs before its program starts: it makes the kernel kill it when its parent ends."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # looked up here: after the fork nothing may allocate or lock

    def ask_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the request to the kernel
            os._exit(1)

    return ask_kernel
