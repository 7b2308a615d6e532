"""A Ray cluster beside the tests, and ``paceline`` by the interpreter that has Ray."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil

from tests.architecture.sources import ROOT
from tests.support.waiting import eventually

PYTHON = ROOT / ".venv-adapters" / "bin" / "python"
MARK = "PACELINE_TEST_MARK"
BEGINS_S = 120.0


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Emulated nodes on loopback; whatever is started in them has the cluster's environment."""

    address: str
    nodes: list[str]
    jobs: str
    """Where ``ray job`` submits, if it does."""
    environment: Mapping[str, str]
    process: "subprocess.Popen[str]"
    lines: TextIO

    def kill(self, node: str) -> None:
        """End a node as a crash would: its raylet by SIGKILL."""
        assert self._do(f"kill {node}") == {"killed": node}

    def add(self) -> str:
        """Another node."""
        return str(self._do("add")["node"])

    def paceline(self, *arguments: str, code: int = 0, seconds: float = 180.0, **more: str) -> str:
        """What ``paceline`` prints."""
        return self.run(str(PYTHON), "-m", "paceline", *arguments, code=code, seconds=seconds, **more)

    def run(self, *command: str, code: int = 0, seconds: float = 180.0, **more: str) -> str:
        """What a command prints that knows this cluster."""
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=ROOT,
            env={**self.environment, "RAY_ADDRESS": self.address, **more},
        )
        assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        return done.stdout + done.stderr

    def left(self) -> list[psutil.Process]:
        """Agents of this cluster, and their workers, that run."""
        return [each for each in family(self.environment[MARK]) if "workers" in _words(each)]

    def _do(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(_line(self.lines, self.process))
        return answer


@contextmanager
def running_cluster(*, nodes: int, cpus: int, jobs_at: int | None = None) -> Iterator[Cluster]:
    """A head without CPUs, and so many nodes; ``jobs_at``: the port at which jobs are submitted."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # sockets lie in it: its path must be short
    mark = os.urandom(8).hex()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "DJANGO_", "RAY_"))}
    environment = {
        **kept,
        MARK: mark,
        "PYTHONPATH": str(ROOT),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "120",
        "OMP_NUM_THREADS": "1",
        "XDG_STATE_HOME": str(folder / "state"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }
    command = [str(PYTHON), str(Path(__file__).with_name("ray_cluster.py")), str(nodes), str(cpus)]
    command += [] if jobs_at is None else [str(jobs_at)]
    with (folder / "said").open("w") as said, (folder / "said").open() as lines, (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            told = json.loads(_line(lines, process, folder / "log"))
            yield Cluster(environment=environment, process=process, lines=lines, **told)
        finally:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20.0)
            for left in family(mark):
                with suppress(psutil.NoSuchProcess):
                    left.send_signal(signal.SIGKILL)
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def family(mark: str) -> list[psutil.Process]:
    """Processes that carry the mark, and are not over."""
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _line(lines: TextIO, process: "subprocess.Popen[str]", log: Path | None = None) -> str:
    found = ""

    def look() -> bool:
        nonlocal found
        found += lines.readline()
        assert process.poll() is None, log.read_text()[-3000:] if log else "the cluster has ended"
        return found.endswith("\n")

    eventually(look, what="a word of the Ray cluster", seconds=BEGINS_S, every=0.05)
    return found
