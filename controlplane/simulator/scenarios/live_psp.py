"""PSP's figures at a size for two cores: run with real processes, and also simulated."""

from typing import Final

from msgspec.structs import replace

from controlplane.protocol.spec import Evaluate, JobSpec, Stop, Synchronization, Workload
from controlplane.protocol.training import Optimizer
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.numerics.settings import Optimizer as SimulatedOptimizer
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import BSP
from controlplane.simulator.scenarios.live_lb_bsp import DIGITS, SIZES, STORY
from controlplane.simulator.scenarios.psp import PSP, pbsp

SPEED: Final = 40.0
"""Samples per second of a usual worker: 0.8 s for its 32."""
LR: Final = 0.05


def _workers(
    name: str, title: str, workers: int, slow: int, times: float, policies: dict[str, Synchronization]
) -> Scenario:
    return Scenario(
        name=name,
        title=title,
        story=STORY + " Each worker has two shards of the digits sorted by label, so most see few classes.",
        spec=JobSpec(
            name=name,
            workload=Workload(name="softmax-regression", init="seed", partition="two-shards"),
            workers=workers,
            servers=1,
            batch_size=32,
            optimizer=Optimizer(name="sgd", lr=LR),
            evaluate=Evaluate(every=2),
            stop=Stop(seconds=60.0),
            seed=7,
        ),
        policies=policies,
        baseline="bsp",
        groups=(
            Group(count=workers - slow, machine=CpuMachine(samples_per_second=SPEED)),
            Group(count=slow, machine=CpuMachine(samples_per_second=SPEED, slowness=times)),
        ),
        tensor_sizes=SIZES,
        numerics=replace(DIGITS, partition="two-shards", optimizer=SimulatedOptimizer(lr=LR)),
    )


SLOWNESS: Final = {
    "bsp": BSP,
    "asp": PSP["asp"],
    "asp-mean": PSP["asp-mean"],
    "pbsp": pbsp(2),
    "pbsp-mean": pbsp(2, step_scale="mean"),
}
STRATEGIES: Final = {"bsp": BSP} | {
    f"{strategy}-2": pbsp(2, strategy=strategy) for strategy in ("fixed", "dynamic", "grouped")
}

SCENARIOS = (
    _workers("live-psp-16", "16 workers with different data, 2 of them five times as slow", 16, 2, 5.0, PSP),
    *(
        _workers(f"live-psp-slowness-{times}", f"2 of 8 workers {times} times slower", 8, 2, times, SLOWNESS)
        for times in (2, 8)
    ),
    _workers("live-psp-strategies", "Sampling strategies, with 2 of 8 workers half as fast", 8, 2, 2.0, STRATEGIES),
)
