"""PSLD section 6: parameter servers of which some are slow, from the first iteration on."""

from typing import Any, Final, Literal

from controlplane.protocol.spec import Choice, JobSpec, Stop, Synchronization, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.network import GBIT, Link, ServerSpec
from controlplane.simulator.scenario import Group, PaperFigure, Scenario
from controlplane.simulator.scenarios.tensors import ALEXNET, RESNET50, RESNET101, VGG16

Model = Literal["alexnet", "resnet50", "vgg16", "resnet101"]
TRAINED: Final[tuple[Model, ...]] = ("alexnet", "resnet50", "vgg16")
"""The models that section 6 trains."""
MODELS: Final[dict[Model, tuple[int, ...]]] = {
    "alexnet": ALEXNET,
    "resnet50": RESNET50,
    "vgg16": VGG16,
    "resnet101": RESNET101,
}
BATCH: Final[dict[Model, int]] = {"alexnet": 32, "resnet50": 32, "vgg16": 64, "resnet101": 32}
PICTURES_PER_S: Final[dict[Model, float]] = {"alexnet": 1500.0, "resnet50": 200.0, "vgg16": 130.0, "resnet101": 120.0}
"""Images per second of one GTX 1080Ti in single precision, by common benchmarks; not in the paper."""

USUAL: Final = ServerSpec(bytes_per_s=10 * GBIT, latency_s=0.0005)
LINK: Final = Link(bytes_per_s=10 * GBIT, latency_s=0.0005)
GPUS: Final = 2
"""GPUs per machine (section 6.1): their gradients are summed on the machine before the push, as BytePS does."""
ITERATIONS: Final = 80
WARM_UP: Final = 45
"""Iterations until the placements have settled: all of them are checked every ten iterations."""
STORY: Final = (
    "Every worker and server has 10 Gbit/s; a server's bandwidth is shared by the workers' exchanges, "
    "which vary by 5 %. GPU speeds are from common benchmarks. The two GPUs of a machine sum gradients "
    "before the push, and communication overlaps with computation, as in BytePS. In Cluster-A servers run "
    "on the GPUs' machines and share their links: its eight machines have the GPUs and cores for sixteen "
    "workers and servers, and there were no others. Nothing is calibrated."
)


def placed(name: str, **parameters: Any) -> Synchronization:
    """A placement, under BSP."""
    return Synchronization(placement=Choice(name=name, parameters=parameters))


PLACEMENTS: Final = {
    "mxnet": placed("mxnet"),
    "round-robin": placed("round-robin"),
    "proportional": placed("proportional"),
    "psld": placed("psld"),
    "psld-literal": placed("psld", literal=True),
    "psld-lpt": placed("psld-lpt"),
}


def slowed(times: float) -> ServerSpec:
    """A server with ``times`` times less bandwidth."""
    return ServerSpec(bytes_per_s=10 * GBIT / times, latency_s=USUAL.latency_s)


def busy(part: float) -> ServerSpec:
    """A server on which others use ``part`` of the CPU: its sums are slower by that (disrupted machine)."""
    return ServerSpec(bytes_per_s=10 * GBIT, latency_s=USUAL.latency_s, sums_bytes_per_s=10 * GBIT * (1.0 - part))


def job(
    name: str,
    title: str,
    model: Model,
    count: int,
    odd: dict[int, ServerSpec],
    *,
    gpus: int = GPUS,
    **changes: Any,
) -> Scenario:
    """As many GPUs as servers; the servers in ``odd`` are slow. A worker here is a machine with ``gpus`` GPUs."""
    machine = CpuMachine(samples_per_second=PICTURES_PER_S[model] * gpus)
    workers = count // gpus
    fields: dict[str, Any] = {
        "story": STORY,
        "spec": JobSpec(
            name=name,
            workload=Workload(name=model),
            workers=workers,
            servers=count,
            batch_size=BATCH[model] * gpus,
            stop=Stop(iterations=ITERATIONS),
        ),
        "policies": PLACEMENTS,
        "groups": (Group(count=workers, machine=machine, link=LINK),),
        "overlaps": True,
        "servers_beside_workers": True,
        "tensor_sizes": MODELS[model],
        "servers": USUAL,
        "odd_servers": odd,
        "wavering": Wavering(noise=0.02),
        "exchanges": Wavering(noise=0.05),
        "control": ControlPlane(latency_s=0.001),
        "warm_up": WARM_UP,
    }
    return Scenario(name=name, title=title, baseline="mxnet", **(fields | changes))


def _gain(model: str, percent: float) -> PaperFigure:
    return PaperFigure(
        where="Fig. 11",
        statement=f"training {model} up to {percent:g} % faster than with MXNet's placement",
        policy="psld",
        metric="iteration_s",
        ratio=1 / (1 + percent / 100),
    )


GAINS: Final[dict[Model, float]] = {"alexnet": 224, "resnet50": 109, "vgg16": 286}

SCENARIOS = (
    *(
        job(
            f"psld-{model}-{count}",
            f"{model} with {count} workers and servers, one at a tenth of the bandwidth",
            model,
            count,
            {count - 1: slowed(10)},
            paper=(_gain(model, GAINS[model]),) if count == 8 else (),
        )
        for model in TRAINED
        for count in (2, 4, 8, 16)
    ),
    *(job(f"psld-{model}-even", f"{model} with eight servers, none of them slow", model, 8, {}) for model in TRAINED),
    *(
        job(
            f"psld-{model}-bandwidth-{times}",
            f"{model}, two of eight servers with {'half' if times == 2 else f'a {times}th'} of the bandwidth",
            model,
            8,
            {6: slowed(times), 7: slowed(times)},
        )
        for model in TRAINED
        for times in (2, 5, 10, 20)
    ),
    *(
        job(
            f"psld-vgg16-cpu-{part}",
            f"vgg16, two of eight servers with {part} % of their CPU taken",
            "vgg16",
            8,
            {6: busy(part / 100), 7: busy(part / 100)},
        )
        for part in (50, 80, 95)
    ),
    *(
        job(
            f"psld-{model}-slow-{slow}",
            f"{model}, {slow} of eight servers with a tenth of the bandwidth",
            model,
            8,
            {7 - index: slowed(10) for index in range(slow)},
        )
        for model in ("resnet50", "vgg16")
        for slow in (1, 2, 3, 4)
    ),
    *(
        job(
            f"psld-resnet101-{count}",
            f"resnet101 with {count} workers and servers, none of them slow",
            "resnet101",
            count,
            {},
            gpus=1,
            policies={"mxnet": placed("mxnet"), "round-robin": placed("round-robin")},
        )
        for count in (2, 3, 4, 6)
    ),
)
