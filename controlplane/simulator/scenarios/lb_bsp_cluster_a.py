"""LB-BSP section 5.1: sixteen GPUs of four kinds, and twelve without the fastest kind."""

from typing import Any, Final

from controlplane.protocol.spec import Evaluate, JobSpec, Limits, Stop, Workload
from controlplane.simulator.control import ControlPlane
from controlplane.simulator.disturbances import Wavering
from controlplane.simulator.gpus import Gpu, Model, gpu
from controlplane.simulator.network import GBIT, Link
from controlplane.simulator.numerics.settings import Numerics, Optimizer, Target
from controlplane.simulator.scenario import Group, PaperFigure, Scenario
from controlplane.simulator.scenarios.choices import ASP, BSP, batching, ssp

KINDS: Final[tuple[Gpu, ...]] = ("V100", "M60", "K80", "K520")
PARAMETERS: Final[dict[Model, int]] = {"inception-v3": 23_800_000, "resnet-32": 464_000}
LINK: Final = Link(bytes_per_s=10 * GBIT, latency_s=0.0005)
STORY: Final = (
    "GPU curves as in simulator/gpus.py, links of 10 Gbit/s, 3 % noise. With Inception-V3, a small convex "
    "model replaces the network to count the updates to a target: only the ratio between policies is "
    "meaningful, not the number. ResNet-32 is times only."
)
SUBSTITUTE: Final = Numerics(
    problem="softmax-regression",
    samples=20_000,
    held_out=2_000,
    features=20,
    classes=10,
    separation=3.0,
    optimizer=Optimizer(lr=0.1),
    target=Target(loss=0.93),
)


def cluster(name: str, title: str, model: Model, batch: int, kinds: tuple[Gpu, ...], **changes: Any) -> Scenario:
    """Four workers of each kind."""
    spec = JobSpec(
        name=name,
        workload=Workload(name=model),
        workers=4 * len(kinds),
        servers=4,
        batch_size=batch,
        limits=Limits(maximum=min(gpu(kind, model).memory_samples for kind in kinds) if len(kinds) == 1 else None),
        stop=Stop(iterations=300),
        evaluate=Evaluate(every=1),
        aggregation=changes.pop("aggregation", None),
    )
    scenario: dict[str, Any] = {
        "policies": {
            "bsp": BSP,
            "asp": ASP,
            "ssp": ssp(5),
            "lb-bsp-gpu": batching("lb-bsp-gpu"),
            "lb-bsp-linear": batching("lb-bsp-linear"),
        },
        "groups": tuple(Group(count=4, machine=gpu(kind, model), link=LINK) for kind in kinds),
        "tensor_sizes": (PARAMETERS[model],),
        "wavering": Wavering(noise=0.03),
        "control": ControlPlane(latency_s=0.001, decision_s=0.0001),
        "warm_up": 100,
    }
    return Scenario(name=name, title=title, story=STORY, spec=spec, baseline="bsp", **(scenario | changes))


def _gain(where: str, statement: str, ratio: float) -> PaperFigure:
    return PaperFigure(where=where, statement=statement, policy="lb-bsp-gpu", metric="iteration_s", ratio=ratio)


SAME_UPDATES: Final = PaperFigure(
    where="Fig. 6b",
    statement="as many updates as BSP to the same accuracy",
    policy="lb-bsp-gpu",
    metric="updates_to_target",
    ratio=1.0,
)

SCENARIOS = (
    cluster(
        "lb-bsp-cluster-a",
        "Inception-V3 on 16 GPUs of four kinds",
        "inception-v3",
        32,
        KINDS,
        numerics=SUBSTITUTE,
        paper=(_gain("section 5.1", "up to 54 % faster (the curves are set by it)", 0.46), SAME_UPDATES),
    ),
    cluster(
        "lb-bsp-cluster-a-naive",
        "The same, gradients of unequal batches averaged as if they were equal",
        "inception-v3",
        32,
        KINDS,
        numerics=SUBSTITUTE,
        aggregation="naive",
    ),
    cluster(
        "lb-bsp-cluster-a-resnet",
        "ResNet-32 on 16 GPUs of four kinds",
        "resnet-32",
        128,
        KINDS,
        paper=(_gain("Fig. 6a", "iterations 37 % faster", 0.63),),
    ),
    cluster(
        "lb-bsp-cluster-a-twelve",
        "ResNet-32 on 12 GPUs of three kinds",
        "resnet-32",
        128,
        KINDS[1:],
        paper=(_gain("section 5.1", "iterations 28 % faster without the V100s", 0.72),),
    ),
)
