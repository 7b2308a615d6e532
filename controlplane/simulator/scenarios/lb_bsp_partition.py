"""LB-BSP section 7: five workers with data of two classes each; the faster ones process more."""

from typing import Final

from msgspec.structs import replace

from controlplane.protocol.spec import Choice, Evaluate, JobSpec, Stop, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.numerics.settings import Numerics, Optimizer
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import batching

SPEEDS: Final = (80.0, 120.0, 160.0, 200.0, 240.0)
"""In the proportions of the paper's batches: 64, 96, 128, 160 and 192."""
LB_BSP: Final = batching("lb-bsp-cpu", predictor="ema")
CLASSES: Final = Numerics(
    problem="softmax-regression",
    dataset="digits",
    samples=1437,
    held_out=360,
    classes=10,
    penalty=0.0,
    order="by-label",
    optimizer=Optimizer(lr=0.2),
)
KEPT: Final = Scenario(
    name="lb-bsp-partition",
    title="Five workers with two classes each; faster workers take more samples",
    story="A softmax regression on the digits of scikit-learn instead of ResNet-32; splits are contiguous "
    "ranges of the data sorted by label.",
    spec=JobSpec(
        name="lb-bsp-partition",
        workload=Workload(name="softmax-regression"),
        workers=5,
        servers=1,
        batch_size=128,
        evaluate=Evaluate(every=5),
        stop=Stop(iterations=300),
    ),
    policies={
        "own": replace(LB_BSP, data=Choice(name="rotation")),
        "migrate": replace(LB_BSP, data=Choice(name="exchange", parameters={"method": "migrate"})),
    },
    baseline="own",
    groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=speed)) for speed in SPEEDS),
    numerics=CLASSES,
    wavering=Wavering(noise=0.02),
    control=ControlPlane(latency_s=0.005),
    warm_up=30,
)
SCENARIOS = (
    KEPT,
    replace(
        KEPT,
        name="lb-bsp-partition-independent",
        title="The same, where every worker may draw any sample",
        spec=replace(KEPT.spec, name="lb-bsp-partition-independent"),
        policies={"shared": LB_BSP},
        baseline="shared",
        numerics=replace(CLASSES, order="random"),
    ),
)
