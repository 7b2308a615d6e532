"""A-BSP's eight jobs at a size for two cores: run with real processes, and also simulated."""

from typing import Any, Final

from controlplane.protocol.spec import Evaluate, JobSpec, Stop, Workload
from controlplane.protocol.training import Optimizer
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import BSP, barrier, ssp
from controlplane.simulator.scenarios.live_lb_bsp import STORY

SPEEDS: Final = (140.0, 140.0, 90.0, 64.0)
"""The fastest 2.2 times as fast as the slowest (Table 2), which takes a second."""

SPARSE: Final = Workload(name="logistic-regression", dataset="urls-like", data={"features": 200, "present": 10})
"""Data with 200 columns, since 40 batches of 64 rows learn nothing about 20,000."""


def _job(name: str, workload: Workload, lr: float | None, sizes: tuple[int, ...]) -> Scenario:
    fields: dict[str, Any] = {"optimizer": Optimizer(name="sgd", lr=lr)} if lr is not None else {}
    return Scenario(
        name=f"live-a-bsp-{name}",
        title=f"{name} on four machines, the slowest less than half as fast as the fastest",
        story=STORY + " Batches of 64 for passes over 69,000 samples.",
        spec=JobSpec(
            name=f"live-a-bsp-{name}",
            workload=workload,
            workers=4,
            servers=1,
            batch_size=64,
            evaluate=Evaluate(every=1),
            stop=Stop(iterations=40),
            seed=7,
            **fields,
        ),
        policies={"bsp": BSP, "a-bsp": barrier("aggressive", report_s=0.1), "ssp-3": ssp(3)},
        baseline="bsp",
        groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=speed)) for speed in SPEEDS),
        tensor_sizes=sizes,
        warm_up=5,
    )


SCENARIOS = (
    _job("lr", Workload(name="logistic-regression", dataset="breast-cancer"), 0.02, (30, 1)),
    _job("sparse-lr", SPARSE, 1.0, (200, 1)),
    _job("svm", Workload(name="linear-svm", dataset="breast-cancer"), 0.01, (60, 2)),
    _job("lasso", Workload(name="lasso", dataset="lines"), 0.02, (50,)),
    _job("ridge", Workload(name="ridge", dataset="lines"), 0.02, (50, 1)),
    _job("k-means", Workload(name="k-means", dataset="digits"), None, (650,)),
    _job("mf", Workload(name="als", dataset="movielens-like"), None, (300 * 8,)),
    _job("dnn", Workload(name="mlp", dataset="digits"), 0.05, (64 * 64, 64, 640, 10)),
)
