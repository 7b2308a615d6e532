"""The machines of ``manage.py demo``."""

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import BSP, batching

SCENARIOS = (
    Scenario(
        name="demo",
        title="The demo's four machines",
        story="1000, 1000, 500 and 250 samples per second, 64 samples each; speeds are constant, and only "
        "computation takes time.",
        spec=JobSpec(
            name="demo",
            workload=Workload(name="softmax-regression"),
            workers=4,
            servers=2,
            batch_size=64,
            stop=Stop(iterations=200),
        ),
        policies={
            "bsp": BSP,
            "lb-bsp-cpu": batching("lb-bsp-cpu", predictor="ema"),
            "lb-bsp-linear": batching("lb-bsp-linear"),
        },
        baseline="bsp",
        groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=v)) for v in (1000, 1000, 500, 250)),
        tensor_sizes=(640, 10),
        warm_up=10,
    ),
)
