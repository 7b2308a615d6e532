"""Runs ``manage.py`` as a person would, and sees whether it left anything behind."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from controlplane.runtime.embedded.control_plane import CHECKOUT, MANAGE
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.ground import check_port
from tests.support.waiting import eventually

END_S = 30.0
MARK = "PACELINE_TEST_MARK"


@dataclass(slots=True, kw_only=True)
class Running:
    """A command that runs; everything that it starts inherits its mark."""

    process: subprocess.Popen[str]
    output: Path
    mark: str

    def said(self) -> str:
        """All that it has printed."""
        return self.output.read_text()

    def await_word(self, word: str, *, seconds: float = 60.0) -> None:
        """Wait until it has printed that."""

        def look() -> bool:
            found = word in self.said()
            assert found or self.process.poll() is None, f"ended before it said {word!r}:\n{self.said()}"
            return found

        eventually(look, what=f"the word {word!r}", seconds=seconds)

    def end(self, *, seconds: float) -> int:
        """Wait for its end, so long on an idle machine and longer on a busy one; the exit code."""
        try:
            eventually(lambda: self.process.poll() is not None, what="its end", seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said:\n{self.said()}") from None
        return self.process.wait()

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> int:
        """Ask for the end; the exit code."""
        self.process.send_signal(number)
        return self.end(seconds=END_S)

    def assert_gone(self, port: int) -> None:
        """See that none of its processes is left, and that others can listen on its port."""
        eventually(lambda: not self.family() and port_is_free(port), what="the end of every process")

    def family(self) -> list[psutil.Process]:
        """The processes that carry its mark, or name its folder, and are not over."""
        folder = str(self.output.parent)
        return [process for process in psutil.process_iter() if _belongs(process, self.mark, folder)]


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = MANAGE,
    within: Path = CHECKOUT,
) -> Iterator[Running]:
    """Start ``manage.py``, or another program, with its data and its temporary files under ``folder``."""
    output, mark = folder / f"output-{os.urandom(4).hex()}", os.urandom(8).hex()
    (folder / "tmp").mkdir(exist_ok=True)
    private = {"PACELINE_DATA_DIR": str(folder / "var"), "TMPDIR": str(folder / "tmp"), MARK: mark, "REDIS_URL": ""}
    with output.open("w") as file:
        process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=within,
            env={**os.environ, **private, **(environment or {})},
        )
    command = Running(process=process, output=output, mark=mark)
    try:
        yield command
    finally:
        process.kill()
        process.wait()
        for left in command.family():
            left.kill()


def run(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run it to its end: exit code and output."""
    with running(folder, *arguments, environment=environment) as command:
        return command.end(seconds=END_S), command.said()


def port_is_free(port: int) -> bool:
    """Whether a server could listen there; a process that is being killed may hold it a moment longer."""
    try:
        check_port("127.0.0.1", port)
    except CannotStart:
        return False
    return True


def _belongs(process: psutil.Process, mark: str, folder: str) -> bool:
    """By its environment, or, since Redis writes over that, by its title."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get(MARK) == mark or any(folder in word for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
