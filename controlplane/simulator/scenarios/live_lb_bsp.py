"""LB-BSP's figures at a size for two cores: run with real processes, and also simulated."""

from typing import Any, Final

from msgspec.structs import replace

from controlplane.protocol.spec import Evaluate, JobSpec, Stop, Workload
from controlplane.protocol.training import Federated, Optimizer
from controlplane.simulator.gpus import Gpu, Model, gpu
from controlplane.simulator.machines import CpuMachine, GpuMachine
from controlplane.simulator.network import Link, LinkChange
from controlplane.simulator.numerics.settings import Numerics, Target
from controlplane.simulator.numerics.settings import Optimizer as SimulatedOptimizer
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.choices import ASP, BSP, batching, ssp

STORY: Final = (
    "A few small machines of emulated speed, so that two cores can run the same job: real gradients, "
    "followed by a pause. Speeds are constant, and only computation and links take time."
)
DIGITS: Final = Numerics(
    problem="softmax-regression",
    dataset="digits-of-jobs",
    samples=1437,
    held_out=360,
    classes=10,
    penalty=0.0,
    optimizer=SimulatedOptimizer(lr=0.2),
    target=Target(accuracy=0.85),
)
"""The model of the jobs below: a softmax regression on the digits of scikit-learn."""
LR: Final = Optimizer(name="sgd", lr=0.2)
SLOWLY: Final = 0.04
"""A learning rate with which the target takes about forty iterations: shares have settled by then, and one iteration
more or less matters little.
"""
SLOWLY_LEARNED: Final = replace(DIGITS, optimizer=SimulatedOptimizer(lr=SLOWLY))
SIZES: Final = (640, 10)
SOFTMAX: Final = Workload(name="softmax-regression", init="seed")
"""It begins with initial values that its simulated twin can use too."""

SHORTER: Final = 0.35
"""Factor of Inception-V3's times on a GPU: 1.2 s for an iteration of BSP."""
KINDS: Final[tuple[Gpu, ...]] = ("V100", "M60", "K80", "K520")


def _gpu(kind: Gpu, model: Model, times: float) -> GpuMachine:
    whole = gpu(kind, model)
    return replace(whole, launch_s=whole.launch_s * times, seconds_per_sample=whole.seconds_per_sample * times)


def _gpus(name: str, title: str, **changes: Any) -> Scenario:
    return Scenario(
        name=name,
        title=title,
        story=STORY + " GPU curves of Inception-V3 as in simulator/gpus.py, a third as long.",
        spec=JobSpec(
            name=name,
            workload=SOFTMAX,
            workers=4,
            servers=1,
            batch_size=32,
            optimizer=Optimizer(name="sgd", lr=SLOWLY),
            evaluate=Evaluate(every=1),
            stop=Stop(iterations=60),
            seed=7,
            **changes,
        ),
        policies={
            "bsp": BSP,
            "asp": ASP,
            "ssp": ssp(5),
            "lb-bsp-gpu": batching("lb-bsp-gpu"),
            "lb-bsp-linear": batching("lb-bsp-linear"),
        },
        baseline="bsp",
        groups=tuple(Group(count=1, machine=_gpu(kind, "inception-v3", SHORTER)) for kind in KINDS),
        tensor_sizes=SIZES,
        numerics=SLOWLY_LEARNED,
        warm_up=30,
    )


SPEEDS: Final = (192.0, 192.0, 96.0, 64.0)
"""The slowest a third as fast as the fastest (Hetero-L3)."""

PHASE: Final = 25
"""Iterations of each state of the oscillating link."""
ABUNDANCE, DEFICIT = 10e6, 10e6 / 3
"""Bytes per second; communication is as large a part of an iteration as with ResNet-32."""
OSCILLATING: Final = Link(
    bytes_per_s=ABUNDANCE,
    changes=tuple(
        LinkChange(from_iteration=PHASE * number, bytes_per_s=DEFICIT if number % 2 else ABUNDANCE)
        for number in range(1, 4)
    ),
)
STEADY: Final = Link(bytes_per_s=ABUNDANCE)
HIDDEN: Final = 618
RESNET: Final = 0.6
"""Factor of ResNet-32's times on a GPU."""

CORES: Final = (16 * 0.62, 8 * 1.0, 8 * 1.2, 4 * 1.55, 4 * 1.5)
"""As in ``lb_bsp_federation``."""
LOCAL_STEPS: Final = 20


def _federation(variant: str, title: str, aggregation: str) -> Scenario:
    name = f"live-lb-bsp-federation{variant}"
    return Scenario(
        name=name,
        title=title,
        story=STORY + " Speeds of clients as in lb-bsp-federation; each has two of the ten digits.",
        spec=JobSpec(
            name=name,
            workload=Workload(name="softmax-regression", partition="by-label"),
            workers=5,
            servers=1,
            batch_size=20,
            optimizer=Optimizer(name="sgd", lr=0.5),
            federated=Federated(local_steps=LOCAL_STEPS),
            aggregation=aggregation,  # type: ignore[arg-type]
            evaluate=Evaluate(every=1),
            stop=Stop(iterations=40),
            seed=7,
        ),
        policies={"bsp": BSP, "lb-bsp-federated": batching("lb-bsp-federated")},
        baseline="bsp",
        groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=55.0 * cores)) for cores in CORES),
        tensor_sizes=SIZES,
        warm_up=5,
    )


SCENARIOS = (
    _gpus("live-lb-bsp-gpus", "Four GPUs, emulated"),
    _gpus("live-lb-bsp-gpus-naive", "The same, gradients averaged as if batches were equal", aggregation="naive"),
    Scenario(
        name="live-lb-bsp-cpus",
        title="Four CPU machines, the slowest a third as fast as the fastest",
        story=STORY,
        spec=JobSpec(
            name="live-lb-bsp-cpus",
            workload=SOFTMAX,
            workers=4,
            servers=1,
            batch_size=64,
            optimizer=Optimizer(name="sgd", lr=SLOWLY),
            evaluate=Evaluate(every=1),
            stop=Stop(iterations=60),
            seed=7,
        ),
        policies={
            "bsp": BSP,
            "asp": ASP,
            "ssp": ssp(5),
            "lb-bsp-cpu": batching("lb-bsp-cpu", predictor="ema"),
        },
        baseline="bsp",
        groups=tuple(Group(count=1, machine=CpuMachine(samples_per_second=speed)) for speed in SPEEDS),
        tensor_sizes=SIZES,
        numerics=SLOWLY_LEARNED,
        warm_up=10,
    ),
    Scenario(
        name="live-lb-bsp-oscillating",
        title="Four GPUs, one K520 alternating between 80 and 27 Mbit/s",
        story=STORY + " ResNet-32's curves, 0.6 times as long; model and links scaled to a tenth. Worker 0 is under "
        "test.",
        spec=JobSpec(
            name="live-lb-bsp-oscillating",
            workload=Workload(name="mlp", options={"hidden": [HIDDEN]}),
            workers=4,
            servers=1,
            batch_size=380,
            optimizer=LR,
            evaluate=Evaluate(every=50),
            stop=Stop(iterations=4 * PHASE),
            seed=7,
        ),
        policies={"bsp": BSP, "lb-bsp-gpu": batching("lb-bsp-gpu")},
        baseline="bsp",
        groups=(
            Group(count=1, machine=_gpu("K520", "resnet-32", RESNET), link=OSCILLATING),
            Group(count=1, machine=_gpu("K520", "resnet-32", RESNET), link=STEADY),
            Group(count=1, machine=_gpu("K80", "resnet-32", RESNET), link=STEADY),
            Group(count=1, machine=_gpu("M60", "resnet-32", RESNET), link=STEADY),
        ),
        tensor_sizes=(64 * HIDDEN, HIDDEN, 10 * HIDDEN, 10),
        warm_up=PHASE,
    ),
    _federation("", "Five clients, batches scaled by speed", "fedavg"),
    _federation("-tau", "Five clients, local steps scaled by speed", "fedavg-scaled-steps"),
    _federation("-rate", "Five clients, learning rates scaled as well", "fedavg-scaled-rate"),
)
