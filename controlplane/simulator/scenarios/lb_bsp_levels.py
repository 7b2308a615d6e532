"""LB-BSP section 5.4.2: 32 equal CPU machines, with competing processes at controlled levels."""

from typing import Final

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.background import Competitor
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CompetingMachine, CpuMachine
from controlplane.simulator.network import GBIT, Link
from controlplane.simulator.numerics.settings import Numerics, Optimizer, Target
from controlplane.simulator.scenario import Group, PaperFigure, Scenario
from controlplane.simulator.scenarios.choices import ASP, BSP, batching, ssp

SPEED: Final = 40.0
LINK: Final = Link(bytes_per_s=1 * GBIT, latency_s=0.001)
PARTS: Final = ((0.0, 0.0), (0.4, 0.5), (0.7, 0.7), (1.0, 0.9))
"""For groups of eight machines: the fraction of the level's CPU that the process uses, and the fraction of the time
that it runs.
"""
SUBSTITUTE: Final = Numerics(
    problem="softmax-regression",
    samples=20_000,
    held_out=2_000,
    features=20,
    classes=10,
    separation=3.0,
    optimizer=Optimizer(lr=0.1),
    target=Target(loss=0.93),
)


def level(
    name: str,
    title: str,
    taken: float,
    *,
    numerics: Numerics | None = None,
    iterations: int = 620,
    warm_up: int = 520,
) -> Scenario:
    """The competing process uses at most ``taken`` of a machine's CPU: the slowest machine has 1 - taken of the fastest
    one's speed.
    """
    machines = [
        CompetingMachine(
            samples_per_second=SPEED,
            competitor=Competitor(cpu=part * taken, runs=runs, changes=0.1, step_s=5.0),
        )
        if part * taken
        else CpuMachine(samples_per_second=SPEED)
        for part, runs in PARTS
    ]
    statement = "less than 5 % from ASP's time per update"
    return Scenario(
        name=name,
        title=title,
        story=(
            "Equal machines of 40 samples per second, 128 each; competing processes run and sleep, with "
            "the same settings on each quarter of the machines. CPU use and probabilities were chosen "
            "here: the paper only states the level."
        ),
        spec=JobSpec(
            name=name,
            workload=Workload(name="resnet-32"),
            workers=32,
            servers=1,
            batch_size=128,
            stop=Stop(iterations=iterations),
        ),
        policies={
            "bsp": BSP,
            "asp": ASP,
            "ssp": ssp(5),
            "lb-bsp-cpu": batching("lb-bsp-cpu", predictor="ema", literal=True),
            "narx": batching("lb-bsp-cpu", predictor="narx", literal=True),
            "regression": batching("lb-bsp-cpu", predictor="regression", literal=True),
        },
        baseline="asp",
        groups=tuple(Group(count=8, machine=machine, link=LINK) for machine in machines),
        tensor_sizes=(464_000,),
        wavering=Wavering(noise=0.05),
        control=ControlPlane(latency_s=0.001, decision_s=0.0001, fit_s=2.0),
        numerics=numerics,
        horizon_s=10_000.0,
        warm_up=warm_up,
        paper=(PaperFigure(where="Fig. 12", statement=statement, policy="narx", metric="iteration_s", ratio=1.05),),
    )


SCENARIOS = (
    level("lb-bsp-homogeneous", "32 equal machines", 0.0),
    level("lb-bsp-hetero-l2", "32 machines, the slowest half as fast as the fastest", 1 / 2),
    level("lb-bsp-hetero-l3", "32 machines, the slowest a third as fast as the fastest", 2 / 3),
    level(
        "lb-bsp-hetero-l3-target",
        "The same, with a target",
        2 / 3,
        numerics=SUBSTITUTE,
        iterations=300,
        warm_up=20,
    ),
)
