"""Someone on a login node of the Slurm cluster, who submits to both sides."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.architecture.sources import ROOT
from tests.support.slurm import Cluster
from tests.support.stack import Stack
from tests.support.waiting import eventually


class Submitted(NamedTuple):
    """A job on both sides."""

    job: int
    slurm: int
    script: Path

    @property
    def said(self) -> str:
        """What it printed."""
        output = self.script.with_name(f"output-{self.slurm}.txt")
        return output.read_text() if output.exists() else ""


class User:
    """Someone on a login node, with a folder that all nodes have."""

    def __init__(self, cluster: Cluster, stack: Stack, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.environment = cluster.environment | {
            "PACELINE_URL": stack.url,
            "PACELINE_API_TOKEN": stack.token,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(folder),
        }

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "paceline", "slurm", *arguments],
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def submit(self, *arguments: str, watch: bool = False, **script: Any) -> Submitted:
        """Submit a script; with ``watch`` a process notices its end in the queue."""
        options = {"folder": str(self.folder), "deadline_s": 600} | script
        done = self.run("submit", *([] if watch else ["--no-watch"]), *arguments, SCRIPT=json.dumps(options))
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(r"job (\d+) \(.*\): http://\S+\nSlurm job (\d+): (\S+)\n", done.stdout)
        assert found is not None, done.stdout
        return Submitted(int(found[1]), int(found[2]), Path(found[3]))

    def lines(self, rank: int) -> list[dict[str, Any]]:
        file = self.folder / f"rank-{rank}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def reached(self, rank: int) -> int:
        """The last iteration that a rank has written down; -1: none."""
        return max((line["k"] for line in self.lines(rank) if "k" in line), default=-1)

    def await_iteration(self, iteration: int) -> None:
        """A rank of the script has come so far."""
        eventually(
            lambda: self.reached(0) >= iteration,
            what=f"iteration {iteration}",
            seconds=150,
        )
