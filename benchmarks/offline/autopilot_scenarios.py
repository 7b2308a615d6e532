"""Jobs for ``bench autopilot``, drawn from a seed: machines, disturbances, links, and the barriers that are allowed."""

from typing import Final

import numpy as np
from msgspec.structs import replace

from controlplane.protocol.autopilot import Autopilot
from controlplane.protocol.spec import Choice, Evaluate, JobSpec, Stop, Workload
from controlplane.simulator.background import Background, Competitor
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CompetingMachine, CpuMachine, MachineSpec, SharedMachine, SlowPeriod
from controlplane.simulator.network import GBIT, Link, LinkChange
from controlplane.simulator.numerics.settings import Numerics, Optimizer, ProblemName
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import BSP

KINDS: Final = ("levels", "drawn", "drifting", "shared", "competing", "equal")
"""How the machines of a job differ; a seed begins anywhere and takes each in turn."""

PROBLEMS: Final[tuple[ProblemName, ...]] = ("softmax-regression", "mlp", "cnn")
"""What a job trains, in turns: one that is convex, and two that are not. Of twelve jobs each trains four."""

DIGITS: Final = 1400
"""Pictures that networks are trained on; the rest is held out."""

BARRIERS: Final[tuple[tuple[str, ...], ...]] = ((), (), ("asp",), ("ssp",), ("ssp", "asp"), ("pbsp",))
SPEED: Final = 100.0
"""Samples per second of a usual machine."""
HORIZON_S: Final = 40_000.0


def scenario(seed: int, number: int, *, iterations: int) -> Scenario:
    """One of them; no numerics' target is set yet. ``iterations``: for how long plain BSP is to train."""
    chance = np.random.default_rng([seed, number])
    kind = KINDS[(seed + number) % len(KINDS)]
    problem = PROBLEMS[(seed + number // len(KINDS) + number) % len(PROBLEMS)]
    workers = int(chance.integers(3, 9))
    batch = int(chance.choice([32, 64, 128]))
    elements = int(chance.choice([20_000, 200_000, 1_000_000]))
    allowed = BARRIERS[int(chance.integers(len(BARRIERS)))]
    length_s = iterations * batch / SPEED
    machines = [_machine(kind, chance, length_s) for _ in range(workers)]
    links = _links(chance, workers, batch, elements, length_s)
    spec = JobSpec(
        name=f"autopilot-{seed}-{number}",
        workload=Workload(name=problem),
        workers=workers,
        batch_size=batch,
        evaluate=Evaluate(every=5),
        stop=Stop(iterations=iterations),
        autopilot=Autopilot(barriers=tuple(Choice(name=name) for name in allowed)),
    )
    numerics = Numerics(
        problem="softmax-regression",
        samples=8_000,
        held_out=1_000,
        classes=int(chance.choice([2, 5, 10])),
        separation=float(chance.uniform(1.0, 2.0)),
        optimizer=Optimizer(lr=float(chance.choice([0.003, 0.005, 0.01]))),
    )
    if problem != "softmax-regression":
        numerics = _network(numerics, problem)
    noise, spikes = float(chance.choice([0.02, 0.05, 0.1])), float(chance.choice([0.0, 0.0, 0.02]))
    return Scenario(
        name=spec.name,
        title=f"{problem}, {kind}, {workers} workers of {batch} samples, barriers {' '.join(('bsp', *allowed))}",
        story="Drawn from a seed.",
        spec=spec,
        policies={"bsp": BSP},
        baseline="bsp",
        groups=tuple(Group(count=1, machine=machine, link=link) for machine, link in zip(machines, links, strict=True)),
        tensor_sizes=(elements,),
        control=ControlPlane(latency_s=0.001, decision_s=0.0001),
        wavering=Wavering(noise=noise, spikes=spikes),
        numerics=replace(numerics, data_seed=seed * 1000 + number),
        horizon_s=HORIZON_S,
    )


def _network(drawn: Numerics, problem: ProblemName) -> Numerics:
    """A network on the digits, with ten times the learning rate: BSP still learns at its last iteration."""
    return replace(
        drawn,
        problem=problem,
        dataset="digits",
        samples=DIGITS,
        held_out=1797 - DIGITS,
        features=64,
        classes=10,
        optimizer=Optimizer(lr=10 * drawn.optimizer.lr),
    )


def _machine(kind: str, chance: np.random.Generator, length_s: float) -> MachineSpec:
    speed = SPEED
    if kind == "levels":
        speed *= float(chance.choice([1.0, 1.0, 0.5, 0.25]))
    elif kind in ("drawn", "drifting"):
        speed *= float(chance.uniform(0.3, 1.0))
    elif kind == "shared":
        return SharedMachine(samples_per_second=speed, background=Background(arrivals_per_hour=60.0))
    elif kind == "competing":
        competitor = Competitor(cpu=float(chance.uniform(0.2, 0.7)), runs=0.5, changes=0.05, step_s=5.0)
        return CompetingMachine(samples_per_second=speed, competitor=competitor)
    slow: tuple[SlowPeriod, ...] = ()
    if kind == "drifting" and chance.random() < 0.5:
        begins = float(chance.uniform(0.1, 0.8)) * length_s
        lasts = float(chance.uniform(0.2, 0.6)) * length_s
        slow = (SlowPeriod(times=float(chance.uniform(1.5, 3.0)), from_s=begins, until_s=begins + lasts),)
    overhead = float(chance.choice([0.0, 0.05, 0.2]))
    return CpuMachine(samples_per_second=speed, overhead_s=overhead, slow=slow)


def _links(chance: np.random.Generator, workers: int, batch: int, elements: int, length_s: float) -> list[Link]:
    """Fast for all; thin for some; or one that becomes thin."""
    kind = int(chance.integers(4))
    usual = Link(bytes_per_s=GBIT, latency_s=0.001)
    # A thin link takes a fifth to a half of the computation's time each way.
    thin = elements * 4 / (batch / SPEED * float(chance.uniform(0.2, 0.5)))
    if kind == 0:
        return [Link()] * workers
    if kind == 1:
        return [usual] * workers
    ranks = set(chance.choice(workers, size=max(1, workers // 3), replace=False).tolist())
    odd = Link(bytes_per_s=thin, latency_s=0.005)
    if kind == 3:
        change = LinkChange(bytes_per_s=thin, from_s=float(chance.uniform(0.2, 0.7)) * length_s)
        odd = Link(bytes_per_s=GBIT, latency_s=0.001, changes=(change,))
    return [odd if rank in ranks else usual for rank in range(workers)]
