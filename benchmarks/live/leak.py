"""Memory over a long job: of a worker, a server, and the control plane's services, as a function of iterations."""

import time
from argparse import Namespace
from statistics import linear_regression
from typing import Any, Final

import msgspec
import psutil

from benchmarks.faults.injection import processes_of
from benchmarks.live.cluster import BenchCluster, running_cluster
from benchmarks.live.usage import memory_mb
from controlplane.runtime.embedded.errors import CannotStart

FAST: Final = 1e6
ITERATIONS: Final = 20_000
SAMPLE_S: Final = 1.0
SETTLED: Final = 0.25
"""Fraction of the first samples that is ignored, while caches fill."""

LEAST: Final = 8
FLAT_MB: Final = 4.0
"""Target: MB in 10,000 iterations; the runs are too short to distinguish less from the allocator's steps."""

UNIT: Final = 10_000
BEGIN_S: Final = 120.0
LONGEST_S: Final = 3600.0


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """The result."""

    iterations: int
    seconds: float
    state: str
    memory_mb: dict[str, float]
    """Memory at the end, by process."""
    slopes_mb: dict[str, float]
    """Growth in 10,000 iterations."""

    @property
    def failures(self) -> list[str]:
        """Processes whose memory grows, as sentences."""
        found = [
            f"{name} grows by {mb:.1f} MB in {UNIT:,} iterations" for name, mb in self.slopes_mb.items() if mb > FLAT_MB
        ]
        return found if self.state == "succeeded" else [f"the job ended {self.state}", *found]


def run(options: Namespace) -> dict[str, Any]:
    """Train for the given number of iterations, and sample the memory of all processes each second."""
    with running_cluster() as cluster:
        cluster.join("leak", speeds=[FAST] * 2, server_slots=1)
        job = cluster.submit(
            {
                "name": "leak",
                "workload": {"name": "softmax-regression", "dataset": "digits"},
                "workers": 2,
                "servers": 1,
                "batch_size": 8,
                "synchronization": {"batching": {"name": "lb-bsp-cpu"}},
                "checkpoint": {"every": 1000},
                "evaluate": {"every": 500},
                "stop": {"iterations": options.iterations or ITERATIONS},
                "seed": options.seed,
            }
        )
        begun = cluster.wait(job, lambda found: found["iteration"] > 0, seconds=BEGIN_S)
        if not begun.get("iteration"):
            raise CannotStart(
                f"The job did not begin within {BEGIN_S:.0f} s: {begun.get('state')}, {begun.get('reason')}"
            )
        watched = _watched(cluster, job)
        began, samples, found = time.monotonic(), [], cluster.look(job)
        while not found.get("is_over") and time.monotonic() < began + LONGEST_S:
            samples.append((found["iteration"], {name: memory_mb(process) for name, process in watched.items()}))
            cluster.supervisor.interruption.pause(SAMPLE_S)
            found = cluster.look(job) or found
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
    """The result as a table."""
    lines = [f"{document['iterations']:,} iterations in {document['seconds']:.0f} s; the job {document['state']}"]
    for name, memory in document["memory_mb"].items():
        lines.append(f"  {name:14}{memory:9.0f} MB{document['slopes_mb'][name]:+9.2f} MB in {UNIT:,} iterations")
    return "\n".join(lines)


def _watched(cluster: BenchCluster, job: int) -> dict[str, psutil.Process]:
    services = {name: psutil.Process(pid) for name, pid in cluster.processes.items() if not name.startswith("agent")}
    workers, servers = (processes_of(job, role) for role in "ws")
    return services | {"worker": workers[0], "server": servers[0]}


def _slope(samples: list[tuple[int, float]]) -> float:
    """MB per 10,000 iterations from (iteration, MB) samples; 0.0 if there are too few."""
    settled = [(at, mb) for at, mb in samples[int(len(samples) * SETTLED) :] if mb > 0.0]
    if len(settled) < LEAST or settled[0][0] == settled[-1][0]:
        return 0.0
    iterations, sizes = zip(*settled, strict=True)
    return linear_regression(iterations, sizes).slope * UNIT
