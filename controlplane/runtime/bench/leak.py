"""Memory over a long job: that of a worker, a server, and the control plane's services, against iterations."""

import time
from statistics import linear_regression
from typing import Any, Final

import httpx
import msgspec
import psutil

from controlplane.runtime.bench import strikes
from controlplane.runtime.bench.crew import Crew
from controlplane.runtime.bench.plane import Bench
from controlplane.runtime.embedded.errors import CannotStart
from controlplane.runtime.embedded.joining import let_in

FAST: Final = 1e6
ROOM: Final = "leak"
SAMPLE_S: Final = 1.0
SETTLED: Final = 0.25
"""Part of the samples that does not count: caches fill first."""

LEAST: Final = 8
FLAT_MB: Final = 4.0
"""Bar: MB in 10,000 iterations; the runs are too short to tell less from the allocator's steps."""

UNIT: Final = 10_000
BEGIN_S: Final = 120.0
LONGEST_S: Final = 3600.0


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """What came of it."""

    iterations: int
    seconds: float
    state: str
    memory_mb: dict[str, float]
    """At the end, by process."""
    slopes_mb: dict[str, float]
    """Growth in 10,000 iterations."""

    @property
    def failures(self) -> list[str]:
        """What is not flat."""
        found = [
            f"{name} grows by {mb:.1f} MB in {UNIT:,} iterations" for name, mb in self.slopes_mb.items() if mb > FLAT_MB
        ]
        return found if self.state == "succeeded" else [f"the job ended {self.state}", *found]


def run(bench: Bench, *, iterations: int, seed: int) -> dict[str, Any]:
    """Train for so many iterations, and look at everybody's memory each second."""
    access = let_in("leak", role="admin", environment=bench.environment)
    headers = {"Authorization": f"Bearer {access.token}"}
    with httpx.Client(base_url=bench.plane.url, headers=headers, timeout=10.0, trust_env=False) as client:
        crew = Crew(bench, client)
        crew.join("leak", room=ROOM, workers=2, servers=1, speed=FAST)
        job = crew.submit(
            {
                "name": "leak",
                "workload": {"name": "softmax-regression", "dataset": "digits"},
                "workers": 2,
                "servers": 1,
                "batch_size": 8,
                "synchronization": {"batching": {"name": "lb-bsp-cpu"}},
                "checkpoint": {"every": 1000},
                "evaluate": {"every": 500},
                "stop": {"iterations": iterations},
                "seed": seed,
            },
            room=ROOM,
        )
        begun = crew.wait(job, lambda found: found["iteration"] > 0, seconds=BEGIN_S)
        if not begun.get("iteration"):
            raise CannotStart(
                f"The job did not begin within {BEGIN_S:.0f} s: {begun.get('state')}, {begun.get('reason')}"
            )
        watched = _watched(bench, job)
        began, samples, found = time.monotonic(), [], crew.look(job)
        while not found.get("is_over") and time.monotonic() < began + LONGEST_S:
            samples.append((found["iteration"], {name: _memory_mb(process) for name, process in watched.items()}))
            bench.supervisor.interruption.pause(SAMPLE_S)
            found = crew.look(job) or found
    result = Result(
        iterations=found["iteration"],
        seconds=time.monotonic() - began,
        state=found["state"],
        memory_mb=samples[-1][1] if samples else {},
        slopes_mb={name: _slope([(at, memory[name]) for at, memory in samples]) for name in watched},
    )
    document: dict[str, Any] = msgspec.to_builtins(result)
    return document | {"failures": result.failures}


def table(document: dict[str, Any]) -> str:
    """For people."""
    lines = [f"{document['iterations']:,} iterations in {document['seconds']:.0f} s; the job {document['state']}"]
    for name, memory in document["memory_mb"].items():
        lines.append(f"  {name:14}{memory:9.0f} MB{document['slopes_mb'][name]:+9.2f} MB in {UNIT:,} iterations")
    return "\n".join(lines)


def _watched(bench: Bench, job: int) -> dict[str, psutil.Process]:
    services = {name: psutil.Process(pid) for name, pid in bench.processes.items() if not name.startswith("agent")}
    workers, servers = (strikes.processes_of(job, role) for role in "ws")
    return services | {"worker": workers[0], "server": servers[0]}


def _memory_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


def _slope(samples: list[tuple[int, float]]) -> float:
    """MB in 10,000 iterations, of (iteration, MB); 0.0 where there is too little to tell."""
    settled = [(at, mb) for at, mb in samples[int(len(samples) * SETTLED) :] if mb > 0.0]
    if len(settled) < LEAST or settled[0][0] == settled[-1][0]:
        return 0.0
    iterations, sizes = zip(*settled, strict=True)
    return linear_regression(iterations, sizes).slope * UNIT
