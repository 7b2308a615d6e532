"""PSP's two measures of inconsistency.

Section 6.6: how many updates a worker misses between its pull and its own, with 50 to 500 nodes. Fig. 7c: how much the
sequence of updates differs from BSP's, after 25, 50, 75 and 100 s.
"""

from typing import Final

from msgspec.structs import replace

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import ASP, BSP, ssp
from controlplane.simulator.scenarios.psp import NOISE, SPEED, pbsp, pssp

NODES: Final = (50, 100, 200, 500)
SAMPLES: Final = (1, 2, 4, 8, 16)
SEQUENCE_S: Final = (25, 50, 75, 100)
"""When the sequence of updates is compared: runs of one seed are alike up to there."""
SEQUENCE_NODES: Final = 100


def nodes(count: int) -> Scenario:
    """A fifth of the nodes take twice as long; 100 s of virtual time, times only."""
    usual = CpuMachine(samples_per_second=SPEED)
    return Scenario(
        name=f"psp-inconsistency-{count}",
        title=f"Updates missed with {count} nodes",
        story=(
            "2 s for an iteration of a usual node and 20 % noise, as in the other scenarios of this "
            "paper; a fifth of the nodes take twice as long, a choice made here. The measure is the "
            "number of updates applied between a worker's pull and its own update."
        ),
        spec=JobSpec(
            name=f"psp-inconsistency-{count}",
            workload=Workload(name="mlp"),
            workers=count,
            servers=1,
            batch_size=128,
            stop=Stop(seconds=100.0),
        ),
        policies={"bsp": BSP, "asp": ASP, "ssp": ssp(4)} | {f"pbsp-{size}": pbsp(size) for size in SAMPLES},
        baseline="asp",
        groups=(
            Group(count=count - count // 5, machine=usual),
            Group(count=count // 5, machine=CpuMachine(samples_per_second=SPEED, slowness=2.0)),
        ),
        wavering=NOISE,
        control=ControlPlane(latency_s=0.001),
    )


def sequence(seconds: int) -> Scenario:
    """The same nodes, stopped after so many seconds; samples of 5 % of them."""
    whole = nodes(SEQUENCE_NODES)
    name = f"psp-sequence-{seconds}"
    return replace(
        whole,
        name=name,
        title=f"The sequence of updates of {SEQUENCE_NODES} nodes after {seconds} s",
        story=(
            "2 s for an iteration of a usual node and 20 % noise; a fifth of the nodes take twice as long, a choice "
            "made here. The measure is the difference of the updates from as many in BSP's order."
        ),
        spec=replace(whole.spec, name=name, stop=Stop(seconds=float(seconds))),
        policies={
            "bsp": BSP,
            "asp": ASP,
            "ssp": ssp(4),
            "pbsp": pbsp(SEQUENCE_NODES // 20),
            "pssp": pssp(SEQUENCE_NODES // 20),
        },
    )


SCENARIOS = (*(nodes(count) for count in NODES), *(sequence(seconds) for seconds in SEQUENCE_S))
