"""One run: starts processes, watches them until the target is reached, and ends them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from benchmarks.peers.figures import Figures, Logs, NotReached, figures_of, read
from benchmarks.peers.machine import FOLDER, SCENE
from benchmarks.peers.scenes import Scene
from controlplane.runtime.embedded.control_plane import CHECKOUT

MARKER: Final = "PEERS_RUN"
"""Processes with this variable in their environment belong to the run of that name."""

LOOK_S: Final = 0.5
START_S: Final = 120.0
"""Additional time for the start, on top of a run's limit."""

STOP_S: Final = 10.0
TAIL: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The folder, environment and log of one run."""

    scene: Scene
    folder: Path
    """Of its logs."""
    name: str
    commands: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Of all its processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "DJANGO_"))}
        return kept | {
            FOLDER: str(self.folder),
            SCENE: self.scene.name,
            MARKER: self.name,
            "PYTHONPATH": str(CHECKOUT),
            "OMP_NUM_THREADS": "1",
            "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_TRAIN_V2_ENABLED": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    @property
    def log(self) -> Path:
        """What its processes print."""
        return self.folder / "printed.txt"

    @contextmanager
    def running(self, words: Sequence[str], **more: str) -> Iterator[None]:
        """A command, while the block lasts."""
        with self.log.open("ab") as log:
            environment: Mapping[str, str] = self.environment | more
            process = subprocess.Popen(
                words, env=environment, cwd=CHECKOUT, stdout=log, stderr=log, start_new_session=True
            )
        self.commands.append(process)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.commands.remove(process)

    def check(self) -> None:
        """Check that all commands are running.

        Raises:
            NotReached: with the end of what was printed, if one has ended.
        """
        for process in self.commands:
            if process.poll() is not None:
                printed = self.log.read_text(errors="replace")[-TAIL:]
                raise NotReached(f"ended with exit code {process.returncode}:\n{printed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a run."""

    target: float
    limit_s: float
    """Time limit from the first pass on."""
    launched: float

    def over(self, logs: Logs) -> bool:
        """Whether the target is reached, or the time is up."""
        until = (logs.begun or self.launched + START_S) + self.limit_s
        return logs.reached(self.target) is not None or time.monotonic() > until


def watch(
    ground: Ground, bounds: Bounds, *, also: Sequence[str] = (), pause: Callable[[float], object] = time.sleep
) -> Figures:
    """Wait until the target is reached; ``also``: further markers whose processes' memory counts.

    Raises:
        NotReached: if it is not within the limit, or a process of it ended.
        Interrupted: as ``pause`` does.
    """
    most_mb, logs = 0.0, Logs(passes={}, scores=[])
    while not bounds.over(logs):
        pause(LOOK_S)
        ground.check()
        most_mb = max(most_mb, memory_mb(marked({ground.name, *also})))
        logs = read(ground.folder)
    return figures_of(logs, target=bounds.target, launched=bounds.launched, memory_mb=most_mb)


def marked(markers: set[str]) -> list[psutil.Process]:
    """Processes of those runs."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARKER) in markers:
                found.append(process)
    return found


def memory_mb(processes: Sequence[psutil.Process]) -> float:
    """Their resident memory, summed; pages that several share count for each."""
    total = 0
    for process in processes:
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total / 2**20


def end_all(name: str) -> None:
    """Kill what a run has left behind, such as daemons of a library."""
    for process in marked({name}):
        with suppress(psutil.Error):
            process.kill()
