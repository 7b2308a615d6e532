"""PSP section 6: pBSP and pSSP on 16 and 32 workers, slowness, and sampling strategies."""

from typing import Any, Final

from msgspec.structs import replace

from controlplane.protocol.spec import Evaluate, JobSpec, Stop, Synchronization, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.numerics.settings import Numerics, Optimizer
from controlplane.simulator.scenario import Group, PaperFigure, Scenario
from controlplane.simulator.scenarios.choices import BSP, barrier

SPEED: Final = 64.0
"""Samples per second of a usual worker: 2 s for a batch of 128, so ASP makes 200 iterations in 400 s (Fig. 10a)."""
NOISE: Final = Wavering(noise=0.2)
FEMNIST: Final = Numerics(
    problem="mlp",
    samples=8_000,
    held_out=1_000,
    features=16,
    classes=10,
    hidden=16,
    separation=3.5,
    partition="shards",
    optimizer=Optimizer(name="adam", lr=0.003),
)
"""Shards as in section 6.1; a small network on generated data in place of a convolutional one on FEMNIST."""

CNN: Final = Numerics(
    problem="cnn",
    dataset="digits",
    samples=1_497,
    held_out=300,
    classes=10,
    hidden=32,
    partition="shards",
    optimizer=Optimizer(name="adam", lr=0.001),
)
"""The shape of section 6.1's network, with one layer of each kind, on the digits that come with scikit-learn."""


def cluster(name: str, title: str, workers: int, slow: int, slowness: float, **changes: Any) -> Scenario:
    """``slow`` of the workers take ``slowness`` times as long."""
    usual = CpuMachine(samples_per_second=SPEED)
    slowed = CpuMachine(samples_per_second=SPEED, slowness=slowness)
    fields: dict[str, Any] = {
        "story": (
            "2 s for an iteration of a usual worker, 20 % noise; the paper states neither, nor the number "
            "of slow workers unless it varies it. Updates are applied on arrival, as whole steps (the "
            "paper's w - eta * g), or scaled by 1 / n for n workers (-mean)."
        ),
        "spec": _job(name, workers),
        "policies": PSP,
        "groups": (Group(count=workers - slow, machine=usual), Group(count=slow, machine=slowed)),
        "tensor_sizes": (100_000,),
        "wavering": NOISE,
        "control": ControlPlane(latency_s=0.001),
    }
    return Scenario(name=name, title=title, baseline="bsp", **(fields | changes))


def _job(name: str, workers: int, *, seconds: float = 400.0) -> JobSpec:
    return JobSpec(
        name=name,
        workload=Workload(name="mlp"),
        workers=workers,
        servers=1,
        batch_size=128,
        stop=Stop(seconds=seconds),
        evaluate=Evaluate(every=5),
    )


WHOLE: Final = "paper"


def pbsp(sample: int, **parameters: Any) -> Synchronization:
    """The barrier pBSP with a sample of that size."""
    return barrier("pbsp", **({"sample": sample, "step_scale": WHOLE} | parameters))


def pssp(sample: int, **parameters: Any) -> Synchronization:
    """The barrier pSSP with a sample of that size."""
    return barrier("pssp", sample=sample, staleness=4, step_scale=WHOLE, **parameters)


PSP: Final = {
    "bsp": BSP,
    "ssp": barrier("ssp", staleness=4, step_scale=WHOLE),
    "asp": barrier("asp", step_scale=WHOLE),
    "asp-mean": barrier("asp", step_scale="mean"),
    "pbsp": pbsp(4),
    "pbsp-held": pbsp(4, resample="held"),
    "pbsp-literal": pbsp(4, literal=True),
    "pbsp-mean": pbsp(4, step_scale="mean"),
    "pssp": pssp(4),
    "pssp-held": pssp(4, resample="held"),
}

SIZES: Final = {"bsp": BSP, **{f"pbsp-{size}": pbsp(size) for size in (0, 1, 2, 4, 8, 16, 24)}}

PSSP_SIZES: Final = {
    "bsp": BSP,
    "ssp": PSP["ssp"],
    **{f"pssp-{size}": pssp(size) for size in (2, 4, 8)},
}

STRATEGIES: Final = {
    "bsp": BSP,
    **{
        f"{strategy}-{size}": pbsp(size, strategy=strategy)
        for strategy in ("fixed", "dynamic", "grouped")
        for size in (2, 4, 8)
    },
}

SCENARIOS = (
    cluster("psp-16", "16 workers with different data, 2 of them five times as slow", 16, 2, 5.0, numerics=FEMNIST),
    cluster(
        "psp-16-alike",
        "The same with i.i.d. data",
        16,
        2,
        5.0,
        policies={"bsp": BSP},
        numerics=replace(FEMNIST, partition="iid"),
    ),
    cluster(
        "psp-32",
        "Progress of 32 workers in 400 s",
        32,
        6,
        2.0,
        paper=(
            PaperFigure(
                where="Fig. 10a", statement="200 updates of each against 80", policy="asp", metric="updates", ratio=2.5
            ),
            PaperFigure(
                where="section 6.3", statement="about 85 % more updates", policy="pbsp", metric="updates", ratio=1.85
            ),
        ),
    ),
    cluster("psp-32-sample-sizes", "pBSP with samples of 0 to 24 of 32 workers", 32, 6, 2.0, policies=SIZES),
    cluster(
        "psp-16-cnn",
        "A small convolutional network on the bundled digits",
        16,
        4,
        2.0,
        policies={name: PSP[name] for name in ("bsp", "asp", "pbsp", "pbsp-held")},
        spec=_job("psp-16-cnn", 16, seconds=120.0),
        numerics=CNN,
    ),
    cluster(
        "psp-16-sample-sizes",
        "pSSP with samples of 2 to 8 of 16 workers",
        16,
        2,
        5.0,
        policies=PSSP_SIZES,
        numerics=FEMNIST,
    ),
    *(
        cluster(f"psp-slowness-{times}", f"4 of 16 workers {times} times slower", 16, 4, times, numerics=FEMNIST)
        for times in (2, 4, 6, 8)
    ),
    cluster(
        "psp-strategies",
        "Sampling strategies, with 6 of 24 workers half as fast",
        24,
        6,
        2.0,
        policies=STRATEGIES,
        numerics=FEMNIST,
    ),
)
