"""Paceline's part: a control plane, agents on the emulated machines, attached and native jobs."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.live.cluster import BenchCluster, running_cluster
from benchmarks.peers.running import MARKER, Ground
from benchmarks.peers.scripts.native import MACHINE
from benchmarks.peers.task import BATCH, RATE, SCORE_EVERY, SEED, WORLD
from controlplane.runtime.embedded.joining import let_in

PLANE: Final = "paceline-control-plane"
JOINED_S: Final = 60.0
OVER_S: Final = 30.0
LOOK_S: Final = 0.1


class PacelineRuns:
    """A control plane for the length of a benchmark; its start is measured once."""

    def __init__(self, stack: ExitStack) -> None:
        begun = time.monotonic()
        os.environ[MARKER] = PLANE
        self.cluster: BenchCluster = stack.enter_context(running_cluster())
        del os.environ[MARKER]
        self.start_s = time.monotonic() - begun
        token = let_in("peers", role="admin", environment=self.cluster.environment).token
        self._token = token

    @contextmanager
    def attached(self, ground: Ground, setting: str) -> Iterator[None]:
        """``paceline run -- torchrun paced.py``."""
        from benchmarks.peers.contenders import torchrun

        run = ["-m", "paceline", "run", "--url", self.cluster.plane.url, "--name", "peers", "--batching", setting]
        words = [sys.executable, *run, "--", *torchrun("paced.py")]
        with ground.running(words, PACELINE_API_TOKEN=self._token):
            yield

    @contextmanager
    def native(self, choices: Mapping[str, Mapping[str, Any]], ground: Ground, setting: str) -> Iterator[None]:
        """Agents on four machines, and a job with two parameter servers."""
        with TemporaryDirectory() as folder, ExitStack() as stack:
            for machine in range(WORLD):
                self._join(stack, ground, machine, Path(folder))
            job = self.cluster.submit(specification(choices[setting]), pool=ground.name)
            try:
                yield
            finally:
                self.cluster.ask("POST", f"jobs/{job}/actions/stop")
                self.cluster.wait(job, lambda found: bool(found["is_over"]), seconds=OVER_S)

    def _join(self, stack: ExitStack, ground: Ground, machine: int, folder: Path) -> None:
        name = f"{ground.name}-{machine}"
        token = self.cluster.ask(
            "POST", "agents/enrolment-tokens", json={"name": name, "labels": {"pool": ground.name}}
        )["token"]
        words = [
            *(sys.executable, "-m", "workers", "join", self.cluster.plane.url, "--name", name),
            *("--slots", "1", "--server-slots", "1" if machine < 2 else "0", "--allow-code"),
            *("--state-dir", str(folder / name)),
        ]
        more = {MACHINE: str(machine), "PACELINE_TOKEN": token, "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch")}
        stack.enter_context(ground.running(words, **more))
        deadline = time.monotonic() + JOINED_S
        while not any(row["name"] == name and row["state"] == "online" for row in self.cluster.pages("agents")):
            ground.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"machine {name} was not online after {JOINED_S:g} s")
            time.sleep(LOOK_S)


def specification(synchronization: Mapping[str, Any]) -> dict[str, Any]:
    """The task as a native job."""
    return {
        "name": "peers",
        "workload": {"name": "benchmarks.peers.scripts.native:task"},
        "workers": WORLD,
        "servers": 2,
        "batch_size": BATCH,
        "seed": SEED,
        "optimizer": {"name": "sgd", "lr": RATE},
        "evaluate": {"every": SCORE_EVERY},
        "stop": {"iterations": 100_000},
        "synchronization": dict(synchronization),
    }
