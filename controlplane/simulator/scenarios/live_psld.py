"""PSLD's figures at a size for two cores: run with real processes, and also simulated."""

import random
from typing import Any, Final

from controlplane.protocol.spec import Evaluate, JobSpec, Optimizer, Stop, Synchronization, Workload
from controlplane.simulator.machines import CpuMachine
from controlplane.simulator.network import GBIT, ServerChange, ServerSpec
from controlplane.simulator.scenario import Group, Scenario
from controlplane.simulator.scenarios.live_lb_bsp import STORY
from controlplane.simulator.scenarios.psld import BATCH, MODELS, PICTURES_PER_S, TRAINED, Model, placed

LINK: Final = 16e6
"""Bytes per second of a usual server."""
SCALE: Final[dict[Model, float]] = {"alexnet": 0.008, "resnet50": 0.02, "vgg16": 0.004}
"""Fraction of each tensor's size that is used."""
WORKERS = SERVERS = 4
ITERATIONS: Final = 30
EVERY: Final = 5
USUAL: Final = ServerSpec(bytes_per_s=LINK)


def _blocks(name: str, model: Model, **parameters: Any) -> Synchronization:
    """The placement with blocks scaled like the tensors, so that their number is the same."""
    scale = SCALE[model]
    chosen: dict[str, Any] = {"block_bytes": max(4096, int(4 * 2**20 * scale)), **parameters}
    if name == "mxnet":
        chosen["large"] = max(1, int(1_000_000 * scale))
    elif name != "round-robin":
        chosen["every"] = EVERY
    return placed(name, **chosen)


def _slowed(times: float) -> ServerSpec:
    return ServerSpec(bytes_per_s=LINK / times)


def _changing(states: list[tuple[int, float]]) -> ServerSpec:
    """Changes of a server: the slowdown from each iteration on."""
    (_, first), *later = states
    return ServerSpec(
        bytes_per_s=LINK / first,
        changes=tuple(ServerChange(from_iteration=begin, bytes_per_s=LINK / times) for begin, times in later),
    )


def _job(name: str, title: str, model: Model, odd: dict[int, ServerSpec], **changes: Any) -> Scenario:
    scale = SCALE[model]
    shorter = scale * 10 * GBIT / LINK
    """The factor by which everything is slower than over 10 Gbit/s."""
    machine = CpuMachine(samples_per_second=2 * PICTURES_PER_S[model] / shorter)
    iterations = changes.pop("iterations", ITERATIONS)
    return Scenario(
        name=name,
        title=title,
        story=STORY + " Four workers of two GPUs each, which sum gradients before the push, and four servers; tensors, "
        "blocks, links and computation are scaled down by the same factor.",
        spec=JobSpec(
            name=name,
            workload=Workload(name=f"{model}-shape", dataset="none", options={"scale": scale}),
            workers=WORKERS,
            servers=SERVERS,
            batch_size=2 * BATCH[model],
            optimizer=Optimizer(name="sgd", lr=0.01),
            evaluate=Evaluate(every=1000),
            stop=Stop(iterations=iterations),
            seed=7,
        ),
        policies={
            "mxnet": _blocks("mxnet", model),
            "tensorflow": _blocks("round-robin", model, literal=True),
            "proportional": _blocks("proportional", model),
            "psld": _blocks("psld", model),
            "psld-lpt": _blocks("psld-lpt", model),
        },
        baseline="mxnet",
        groups=(Group(count=WORKERS, machine=machine),),
        tensor_sizes=tuple(max(1, round(size * scale)) for size in MODELS[model]),
        odd_servers=dict.fromkeys(range(SERVERS + changes.get("spare_servers", 0)), USUAL) | odd,
        warm_up=iterations // 2,
        **changes,
    )


APPEARS, RECOVERS, TRANSIENT = 15, 40, 65
"""Iterations between which two of four servers are slow (Fig. 18)."""
STATE: Final = 15
"""Iterations for which a server of a production cluster keeps its speed."""
LARGE: Final = 15
"""The iteration from which most servers are slow (Fig. 17)."""


def _wavering(index: int) -> ServerSpec:
    """As in ``psld_dynamic``: slow an eighth of the time, by up to 4.18 times."""
    chance = random.Random(f"live-psld-{index}")
    begins = [0, *range(chance.randrange(1, STATE), 60, STATE)]
    return _changing([(begin, chance.uniform(1.0, 4.18) if chance.random() < 1 / 8 else 1.0) for begin in begins])


SCENARIOS = (
    *(_job(f"live-psld-{model}", f"{model}, one slow server of four", model, {3: _slowed(10)}) for model in TRAINED),
    *(_job(f"live-psld-{model}-even", f"{model}, no slow server", model, {}) for model in TRAINED),
    *(
        _job(f"live-psld-{model}-slow-2", f"{model}, two slow servers of four", model, {2: _slowed(10), 3: _slowed(10)})
        for model in ("resnet50", "vgg16")
    ),
    *(
        _job(
            f"live-psld-real-world-{model}",
            f"{model} on four servers that other tasks slow down from time to time",
            model,
            {index: _wavering(index) for index in range(SERVERS)},
            iterations=60,
        )
        for model in TRAINED
    ),
    _job(
        "live-psld-transient",
        f"resnet50 on four servers, of which two are slow from iteration {APPEARS} to {RECOVERS}",
        "resnet50",
        dict.fromkeys((2, 3), _changing([(0, 1.0), (APPEARS, 10.0), (RECOVERS, 1.0)])),
        iterations=TRANSIENT,
    ),
    _job(
        "live-psld-scale-out",
        f"vgg16 on four servers, three of which are slow from iteration {LARGE} on",
        "vgg16",
        dict.fromkeys((1, 2, 3), _changing([(0, 1.0), (LARGE, 10.0)])),
        spare_servers=2,
        iterations=45,
    ),
)
