"""``manage.py bench simulator``: events per second, the largest job, and how cost grows with the number of workers.

Only times are simulated. Machines are equal except for noise, so every iteration is a burst of one event per worker.
All of a job is in it, from its submission to its end; the engine and its policies are the live ones. Each job runs in a
process of its own, so that its memory is its own, and as ``manage.py simulate`` runs it; CPU time counts, other load on
the machine is not ours.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TextIO

from controlplane.protocol.spec import Choice, JobSpec, Stop, Synchronization, Workload
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.garbage_collection import rare_garbage_collection
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.running import simulate
from controlplane.simulator.scenario import Group, Scenario

BARRIERS: Final = ("bsp", "ssp", "pbsp")
WORKERS: Final = (100, 1_000, 10_000)
LARGEST: Final = ("bsp", 10_000, 100)
"""Barrier, workers, iterations of the job that the bars are for."""
UPDATES: Final = 100_000
"""Of each of the other jobs, so that they take about as long."""
SECONDS_BAR, MEGABYTES_BAR = 10.0, 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job."""

    barrier: str
    workers: int
    iterations: int
    cpu_s: float
    updates: int
    entries: int
    """Of the log."""
    happened: int
    """Events of the simulation."""
    peak_mb: float
    """Of its process."""
    state: str

    @property
    def update_us(self) -> float:
        """Cost of a worker's iteration, in microseconds."""
        return self.cpu_s / self.updates * 1e6

    @property
    def is_largest(self) -> bool:
        """Whether the bars are for this one."""
        return (self.barrier, self.workers, self.iterations) == LARGEST


def cluster(barrier: str, workers: int, iterations: int) -> Scenario:
    """Machines that take a second for an iteration, give or take a tenth."""
    spec = JobSpec(
        name="many",
        workload=Workload(name="times-only"),
        workers=workers,
        batch_size=64,
        stop=Stop(iterations=iterations),
    )
    return Scenario(
        name="many",
        title="Many machines",
        story="alike but for noise",
        spec=spec,
        policies={barrier: Synchronization(barrier=Choice(name=barrier))},
        baseline=barrier,
        groups=(Group(count=workers, machine=CpuMachine(samples_per_second=64.0)),),
        wavering=Wavering(noise=0.1),
        horizon_s=1e6,
    )


def measure(barrier: str, workers: int, iterations: int) -> Row:
    """Run one job here."""
    scenario = cluster(barrier, workers, iterations)
    began = time.process_time()
    with rare_garbage_collection():
        outcome = simulate(scenario, barrier)
    return Row(
        barrier=barrier,
        workers=workers,
        iterations=iterations,
        cpu_s=time.process_time() - began,
        updates=outcome.updates,
        entries=outcome.events,
        happened=outcome.happened,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        state=outcome.state,
    )


def measured_apart(barrier: str, workers: int, iterations: int) -> Row:
    """Run it in a separate process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (barrier, workers, iterations))


def failures(rows: Sequence[Row]) -> list[str]:
    """Missed targets, as sentences."""
    missed = [
        f"{row.barrier} with {row.workers:,} workers ended {row.state}" for row in rows if row.state != "succeeded"
    ]
    for row in rows:
        job = f"{row.workers:,} workers x {row.iterations} iterations of {row.barrier}"
        if row.is_largest and row.cpu_s > SECONDS_BAR:
            missed.append(f"{job} took {row.cpu_s:.1f} s, at most {SECONDS_BAR:g} s are asked for")
        if row.is_largest and row.peak_mb > MEGABYTES_BAR:
            missed.append(f"{job} took {row.peak_mb:,.0f} MB, at most {MEGABYTES_BAR:,.0f} MB are asked for")
    return missed


def line(row: Row) -> str:
    """One job, for people."""
    per_second = row.happened / row.cpu_s
    return (
        f"{row.barrier:8}{row.workers:>9,}{row.iterations:>12,}{row.cpu_s:>9.2f} s{per_second:>12,.0f}"
        f"{row.update_us:>12.1f} us{row.peak_mb:>9,.0f} MB"
    )


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print the table, or with ``--json`` the figures; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="bench simulator", description=__doc__)
    parser.add_argument("--barriers", default=",".join(BARRIERS))
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)))
    parser.add_argument(
        "--updates", type=int, default=UPDATES, help="of each job but the largest (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    counts = [int(count) for count in options.workers.split(",")]
    jobs = [(barrier, n, max(1, options.updates // n)) for barrier in options.barriers.split(",") for n in counts]
    if LARGEST[0] in options.barriers.split(",") and LARGEST[1] in counts:
        jobs.append(LARGEST)
    rows: list[Row] = []
    if not options.json:
        print("barrier   workers  iterations        CPU    events/s   per update      peak", file=out)
    for job in jobs:
        rows.append(measured_apart(*job))
        if not options.json:
            print(line(rows[-1]), file=out, flush=True)
    missed = failures(rows)
    if options.json:
        json.dump({"rows": [asdict(row) for row in rows], "failures": missed}, out)
    for sentence in missed if not options.json else ():
        print(f"missed: {sentence}", file=out)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
