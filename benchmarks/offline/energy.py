"""``manage.py bench energy --seed N``: the gain of shares by energy and cost over the fastest shares, on mixed
generations of machines.

Engine and policies are the live ones, machines are simulated; learning is included. Power and speed of each generation
are stated below, not measured: power from data sheets with a part of the machine around a GPU, speed in relation to one
another as published figures of image classification have it. The gain follows from them.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from benchmarks.tables import say
from controlplane.core.choices import Metered
from controlplane.policies import registry
from controlplane.protocol.energy import Draw, Energy, Objective, Power, draw_of
from controlplane.protocol.spec import Choice, JobSpec, Stop, Synchronization, Workload
from controlplane.simulator.cluster import Cluster
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.garbage_collection import rare_garbage_collection
from controlplane.simulator.machines import CpuMachine, GpuMachine, MachineSpec
from controlplane.simulator.running import play
from controlplane.simulator.scenario import Group, Scenario

SLACKS: Final = (0.05, 0.1, 0.2, 0.5)
ITERATIONS: Final = 300
BATCH: Final = 64
NOISE: Final = 0.03
KWH: Final = 0.30
"""The price of a kilowatt-hour; prices of machine-hours are in the table below."""

DRAWN: Final = 3
"""Clusters that are drawn from the seed, beside those below."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One kind of machine."""

    machine: MachineSpec
    power: Power


def _gpu(speed: float, idle: float, busy: float, hour: float) -> Generation:
    machine = GpuMachine(launch_s=0.02, seconds_per_sample=1 / speed, saturation=4, memory_samples=4096)
    return Generation(machine, Power(idle_watts=idle, busy_watts=busy, hour=hour))


def _cpu(speed: float, idle: float, busy: float, hour: float) -> Generation:
    return Generation(CpuMachine(samples_per_second=speed), Power(idle_watts=idle, busy_watts=busy, hour=hour))


GENERATIONS: Final = {
    "K80": _gpu(60, 50, 180, 0.45),
    "T4": _gpu(140, 30, 90, 0.35),
    "V100": _gpu(380, 60, 330, 2.00),
    "A100": _gpu(1_200, 80, 450, 3.20),
    "2013 CPU": _cpu(20, 70, 230, 0.20),
    "2022 CPU": _cpu(60, 110, 350, 0.60),
}
CLUSTERS: Final[tuple[dict[str, int], ...]] = (
    {"V100": 8},
    {"A100": 4, "V100": 4},
    {"V100": 4, "K80": 4},
    {"V100": 2, "T4": 6},
    {"2022 CPU": 4, "2013 CPU": 4},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One cluster under one objective; the last three over those of the fastest shares."""

    cluster: str
    objective: Objective
    slack: float
    joules_per_sample: float
    time: float
    joules: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Totals of a run."""

    seconds: float
    joules: float
    cost: float
    samples: int


def drawn(seed: int) -> list[dict[str, int]]:
    """Clusters of two or three generations of GPUs."""
    chance, names = np.random.default_rng(seed), [name for name in GENERATIONS if "CPU" not in name]
    found = []
    for _ in range(DRAWN):
        kinds = chance.choice(names, size=int(chance.integers(2, 4)), replace=False)
        found.append({str(name): int(chance.integers(1, 5)) for name in kinds})
    return found


def scenario(counts: dict[str, int], iterations: int) -> Scenario:
    """The cluster, with the fastest shares and those by each objective and slack."""
    powers = [GENERATIONS[name].power for name, count in counts.items() for _ in range(count)]
    base = "lb-bsp-cpu" if any("CPU" in name for name in counts) else "lb-bsp-linear"
    own = {"predictor": "ema"} if base == "lb-bsp-cpu" else {}
    batching = {"time": Choice(name=base, parameters=own)} | {
        f"{objective}-{slack}": Choice(name=base, parameters={**own, "objective": objective, "slack": slack})
        for objective in ("energy", "cost")
        for slack in SLACKS
    }
    return Scenario(
        name="energy",
        title=_title(counts),
        story="Stated power and speeds.",
        spec=JobSpec(
            name="energy",
            workload=Workload(name="softmax-regression"),
            workers=len(powers),
            batch_size=BATCH,
            stop=Stop(iterations=iterations),
            energy=Energy(kwh=KWH, workers=list(powers)),
        ),
        policies={name: Synchronization(batching=choice) for name, choice in batching.items()},
        baseline="time",
        groups=tuple(Group(count=count, machine=GENERATIONS[name].machine) for name, count in counts.items()),
        control=ControlPlane(latency_s=0.001, decision_s=0.0001),
        wavering=Wavering(noise=NOISE),
        horizon_s=1e6,
    )


def measure(counts: dict[str, int], seed: int, iterations: int) -> list[Row]:
    """Each objective and slack against the fastest shares, on the same machines and disturbances."""
    made = scenario(counts, iterations)
    base = used(play(made, "time", seed=seed))
    rows = []
    for name, chosen in made.policies.items():
        found = base if name == "time" else used(play(made, name, seed=seed))
        parameters = chosen.batching.parameters
        assert isinstance(registry.policy_type("batching", chosen.batching), Metered) == (name != "time")
        rows.append(
            Row(
                cluster=made.title,
                objective=parameters.get("objective", "time"),
                slack=parameters.get("slack", 0.0),
                joules_per_sample=found.joules / found.samples,
                time=found.seconds / base.seconds,
                joules=found.joules / base.joules,
                cost=found.cost / base.cost,
            )
        )
    return rows


def used(cluster: Cluster) -> Used:
    """Time, energy and cost of a run, by the power that its spec states."""
    spec, joules, cost = cluster.scenario.spec, 0.0, 0.0
    for rank, worker in enumerate(cluster.workers):
        draw: Draw = draw_of(spec.energy, rank)
        own = draw.joules(worker.compute_s + worker.communication_s, worker.total_s)
        joules += own
        cost += draw.cost(own, worker.total_s)
    seconds = max(worker.total_s for worker in cluster.workers)
    return Used(seconds=seconds, joules=joules, cost=cost, samples=sum(worker.samples for worker in cluster.workers))


def _title(counts: dict[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in counts.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: shares by an objective used more than the fastest, or took much longer than their slack allows."""
    parser = argparse.ArgumentParser(prog="manage.py bench energy", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of disturbances and drawn clusters (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of each run (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(arguments)
    rows = []
    if not options.json:
        say("| cluster | objective | slack | time | joules | cost | J per sample |")
        say("|---|---|---:|---:|---:|---:|---:|")
    with rare_garbage_collection():
        for counts in (*CLUSTERS, *drawn(options.seed)):
            for row in measure(counts, options.seed, options.iterations):
                rows.append(row)
                if not options.json:
                    say(_line(row))
    failures = missed(rows)
    if options.json:
        say(json.dumps({"rows": [asdict(row) for row in rows], "failures": failures}))
    for failure in failures:
        sys.stderr.write(f"MISSED: {failure}\n")
    return 1 if failures else 0


WORSE: Final = 1.01
"""Noise decides by so much which shares the fastest are."""


def missed(rows: Sequence[Row]) -> list[str]:
    """Missed targets of shares by an objective."""
    found = []
    for row in rows:
        name = f"{row.cluster}, {row.objective} with slack {row.slack:g}"
        if row.objective != "time" and (share := row.joules if row.objective == "energy" else row.cost) > WORSE:
            found.append(f"{name}: {share:.3f} of the {row.objective} of the fastest shares")
        if row.time > (1 + row.slack) * 1.03:
            found.append(f"{name}: {row.time:.3f} of their time")
    return found


def _line(row: Row) -> str:
    return (
        f"| {row.cluster} | {row.objective} | {row.slack:.0%} | {row.time:.3f} | {row.joules:.3f} | {row.cost:.3f} |"
        f" {row.joules_per_sample:.3f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
