"""LB-BSP section 5.2: the equilibrium of four different GPUs, before and after one gets less bandwidth."""

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.gpus import gpu
from controlplane.simulator.network import GBIT, Link, LinkChange
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import BSP, batching
from controlplane.simulator.scenarios.lb_bsp_cluster_a import KINDS, LINK, PARAMETERS

LIMITED = Link(
    bytes_per_s=10 * GBIT,
    latency_s=0.0005,
    changes=(LinkChange(from_iteration=150, bytes_per_s=2.5 * GBIT),),
)


def four(name: str, title: str, iterations: int) -> Scenario:
    """One worker of each kind; the M60 has a quarter of its bandwidth from iteration 150 on."""
    return Scenario(
        name=name,
        title=title,
        story="GPU curves as in simulator/gpus.py, which have the paper's equilibrium as an input: the run "
        "shows how a policy reaches it.",
        spec=JobSpec(
            name=name,
            workload=Workload(name="inception-v3"),
            workers=4,
            servers=4,
            batch_size=32,
            stop=Stop(iterations=iterations),
        ),
        policies={
            "bsp": BSP,
            "lb-bsp-gpu": batching("lb-bsp-gpu"),
            "lb-bsp-gpu-literal": batching("lb-bsp-gpu", literal=True),
            "lb-bsp-linear": batching("lb-bsp-linear"),
        },
        baseline="bsp",
        groups=tuple(Group(count=1, machine=gpu(kind), link=LIMITED if kind == "M60" else LINK) for kind in KINDS),
        tensor_sizes=(PARAMETERS["inception-v3"],),
        wavering=Wavering(noise=0.01),
        control=ControlPlane(latency_s=0.001, decision_s=0.0001),
        warm_up=100,
    )


SCENARIOS = (
    four("lb-bsp-four-gpus", "Four different GPUs reach their equilibrium", 150),
    four(
        "lb-bsp-bandwidth-drop", "Four different GPUs, one with a quarter of its bandwidth from iteration 150 on", 300
    ),
)
