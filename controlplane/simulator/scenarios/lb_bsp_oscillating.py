"""LB-BSP section 5.2.2: eight GPUs, one of which periodically has less bandwidth."""

from typing import Final

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.gpus import gpu
from controlplane.simulator.network import GBIT, Link, LinkChange
from controlplane.simulator.scenario import Group, PaperFigure, Scenario
from controlplane.simulator.scenarios.choices import BSP, batching
from controlplane.simulator.scenarios.lb_bsp_cluster_a import PARAMETERS

ABUNDANCE, DEFICIT = 0.48 * GBIT, 0.16 * GBIT
PHASE: Final = 100
"""Iterations of each state; the paper does not say how long they are."""
PHASES: Final = 6

LINK: Final = Link(bytes_per_s=ABUNDANCE, latency_s=0.0005)
TESTEE: Final = Link(
    bytes_per_s=ABUNDANCE,
    latency_s=0.0005,
    changes=tuple(
        LinkChange(from_iteration=PHASE * number, bytes_per_s=DEFICIT if number % 2 else ABUNDANCE)
        for number in range(1, PHASES)
    ),
)


def _gain(statement: str, ratio: float) -> PaperFigure:
    return PaperFigure(
        where="section 5.2.2", statement=statement, policy="lb-bsp-gpu", metric="iteration_s", ratio=ratio
    )


SCENARIOS = (
    Scenario(
        name="lb-bsp-oscillating",
        title="ResNet-32 on eight GPUs, one K520 alternating between 480 and 160 Mbit/s",
        story=(
            "Worker 0 is under test. Every worker has 480 Mbit/s; GPU curves as in simulator/gpus.py, "
            "whose ResNet-32 is not calibrated by this figure. 100 iterations of each state: the paper "
            "does not say how many."
        ),
        spec=JobSpec(
            name="lb-bsp-oscillating",
            workload=Workload(name="resnet-32"),
            workers=8,
            servers=1,
            batch_size=380,
            stop=Stop(iterations=PHASE * PHASES),
        ),
        policies={
            "bsp": BSP,
            "lb-bsp-gpu": batching("lb-bsp-gpu"),
            "lb-bsp-gpu-literal": batching("lb-bsp-gpu", literal=True),
            "lb-bsp-linear": batching("lb-bsp-linear"),
        },
        baseline="bsp",
        groups=(
            Group(count=1, machine=gpu("K520", "resnet-32"), link=TESTEE),
            Group(count=3, machine=gpu("K520", "resnet-32"), link=LINK),
            Group(count=2, machine=gpu("K80", "resnet-32"), link=LINK),
            Group(count=2, machine=gpu("M60", "resnet-32"), link=LINK),
        ),
        tensor_sizes=(PARAMETERS["resnet-32"],),
        wavering=Wavering(noise=0.02),
        control=ControlPlane(latency_s=0.001, decision_s=0.0001),
        warm_up=PHASE,
        paper=(_gain("iterations over 41 % faster with both kinds of unevenness", 0.59),),
    ),
)
