"""PSLD section 6: servers that become slow and recover, scale-out, and how sensitive the algorithm is.

In experiments on Cluster-B, which had hundreds of machines, servers have their own machines (section 6.1).
"""

import random
from typing import Final

from msgspec.structs import replace

from controlplane.protocol.spec import Checkpointing, JobSpec, Optimizer, Stop, Synchronization, Workload
from controlplane.simulator.network import GBIT, ServerChange, ServerSpec
from controlplane.simulator.scenario import Happening, Scenario
from controlplane.simulator.scenarios.psld import BATCH, GPUS, TRAINED, USUAL, Model, job, placed, slowed

APPEAR_S, RECOVER_S, END_S = 90.0, 360.0, 600.0
"""Fig. 18."""
LARGE_S, LARGE_END_S = 120.0, 600.0
"""When six of eight servers become slow (Fig. 17)."""
SPARE: Final = 6
"""Machines for more servers: the paper does not say how many its cluster had."""
LOST_S: Final = 30.0
DISK: Final = 1e9
"""Bytes per second of a server's disk, for checkpoints; not in the paper."""


def _transient(from_s: float, until_s: float | None) -> ServerSpec:
    back = () if until_s is None else (ServerChange(from_s=until_s, bytes_per_s=10 * GBIT),)
    return ServerSpec(
        bytes_per_s=10 * GBIT,
        latency_s=USUAL.latency_s,
        changes=(ServerChange(from_s=from_s, bytes_per_s=1 * GBIT), *back),
    )


def _timed(name: str, model: Model, count: int, seconds: float) -> JobSpec:
    return JobSpec(
        name=name,
        workload=Workload(name=model),
        workers=count // GPUS,
        servers=count,
        batch_size=BATCH[model] * GPUS,
        stop=Stop(seconds=seconds),
    )


TRANSIENT: Final = {
    "mxnet": placed("mxnet"),
    "proportional": placed("proportional"),
    "psld": placed("psld"),
    "psld-no-exploration": placed("psld", epsilon=0.0, probe_every=0),
    "psld-literal": placed("psld", literal=True),
    "psld-literal-no-exploration": placed("psld", literal=True, epsilon=0.0),
    "psld-lpt": placed("psld-lpt"),
}


def _sensitivity(variable: str, values: tuple[float, ...]) -> Scenario:
    policies = {f"{variable}-{value:g}": placed("psld", **{variable: value}) for value in values}
    literal = {f"{variable}-{value:g}-literal": placed("psld", literal=True, **{variable: value}) for value in values}
    return job(
        f"psld-sensitivity-{variable.replace('_', '-')}",
        f"vgg16, two of eight servers slow: psld with several values of {variable}",
        "vgg16",
        8,
        {6: slowed(10), 7: slowed(10)},
        policies={"mxnet": placed("mxnet")} | policies | literal,
        servers_beside_workers=False,
    )


def _block_sizes() -> Scenario:
    sizes = (1, 2, 4, 8, 16, 64)
    policies = {f"block-{size}": placed("psld", block_bytes=size * 2**20) for size in sizes}
    return job(
        "psld-sensitivity-block",
        "vgg16, two of eight servers slow: psld with blocks of 1 to 64 MiB",
        "vgg16",
        8,
        {6: slowed(10), 7: slowed(10)},
        policies={"mxnet": placed("mxnet")} | policies,
        servers_beside_workers=False,
    )


def _six_slow(name: str, title: str, policies: dict[str, Synchronization]) -> Scenario:
    slow = _transient(LARGE_S, None)
    return job(
        name,
        title,
        "vgg16",
        8,
        dict.fromkeys(range(2, 8), slow),
        spec=_timed(name, "vgg16", 8, LARGE_END_S),
        policies=policies,
        spare_servers=SPARE,
        warm_up=0,
    )


SCALE_OUT: Final = {
    "mxnet": placed("mxnet"),
    "proportional": placed("proportional"),
    "psld": placed("psld"),
    "psld-no-scaling": placed("psld", scale_threshold=0.0),
    "psld-literal": placed("psld", literal=True),
    "psld-literal-no-scaling": placed("psld", literal=True, scale_threshold=0.0),
    "psld-lpt": placed("psld-lpt"),
}
THRESHOLDS: Final = {
    "mxnet": placed("mxnet"),
    **{f"threshold-{part:g}": placed("psld", scale_threshold=part) for part in (0.25, 0.5, 0.75, 1.0)},
}


def _restarted(model: Model) -> Scenario:
    """Two slow servers of eight; under MXNet's placement the job restarts from its last checkpoint."""
    name = f"psld-restart-{model}"
    spec = JobSpec(
        name=name,
        workload=Workload(name=model),
        workers=8 // GPUS,
        servers=8,
        batch_size=BATCH[model] * GPUS,
        stop=Stop(iterations=40),
        checkpoint=Checkpointing(every=1),
        optimizer=Optimizer(momentum=0.9),  # workers have no copy of its blocks: all go back to the checkpoint
    )
    return job(
        name,
        f"{model} on eight servers, restarted from a checkpoint after {LOST_S:g} s",
        model,
        8,
        {6: slowed(10), 7: slowed(10)},
        spec=spec,
        servers=replace(USUAL, disk_bytes_per_s=DISK),
        policies={"mxnet": placed("mxnet")},
        happenings=(Happening(kind="crash", at_s=LOST_S, index=0, role="server"),),
        warm_up=0,
    )


REAL_S: Final = 200.0
STATE_S: Final = 30.0
"""How long a server keeps its speed; chosen here."""
SLOW_PART: Final = 1 / 8
"""The superior set has seven servers of eight on average (section 6.2)."""
MOST_SLOW: Final = 1 + 3.18
"""The largest variation of speeds: (best - worst) / worst is 0.005 to 3.18 (Fig. 5)."""


def _wavering_server(index: int) -> ServerSpec:
    """A server of a production cluster, with speeds according to Fig. 5 and the size of the superior set."""
    chance = random.Random(f"psld-real-world-{index}")
    states = [
        chance.uniform(1.0, MOST_SLOW) if chance.random() < SLOW_PART else 1.0
        for _ in range(round(REAL_S / STATE_S) + 1)
    ]
    begin_s = chance.uniform(0.0, STATE_S)
    return ServerSpec(
        bytes_per_s=10 * GBIT / states[0],
        latency_s=USUAL.latency_s,
        changes=tuple(
            ServerChange(from_s=begin_s + STATE_S * number, bytes_per_s=10 * GBIT / times)
            for number, times in enumerate(states[1:])
        ),
    )


def _real_world(model: Model) -> Scenario:
    name = f"psld-real-world-{model}"
    return job(
        name,
        f"{model} on eight servers that other tasks slow down from time to time",
        model,
        8,
        {index: _wavering_server(index) for index in range(8)},
        spec=_timed(name, model, 8, REAL_S),
        policies={
            "mxnet": placed("mxnet"),
            "tensorflow": placed("round-robin", literal=True),
            "proportional": placed("proportional"),
            "psld": placed("psld"),
            "psld-literal": placed("psld", literal=True),
            "psld-lpt": placed("psld-lpt"),
        },
        servers_beside_workers=False,
        warm_up=0,
    )


STRAGGLER_S: Final = 90.0
"""When the third server of Fig. 6 becomes slow; chosen here."""
STRAGGLER: Final = ServerSpec(
    bytes_per_s=10 * GBIT,
    latency_s=USUAL.latency_s,
    changes=(ServerChange(from_s=STRAGGLER_S, bytes_per_s=10 * GBIT / 33),),
)
"""33 times as slow as the others (section 2.3)."""

SCENARIOS = (
    *(_real_world(model) for model in TRAINED),
    job(
        "psld-straggler",
        "resnet50 on four servers, one slower from the beginning and one 33 times slower from 90 s on",
        "resnet50",
        4,
        {2: slowed(2), 3: STRAGGLER},
        spec=_timed("psld-straggler", "resnet50", 4, 250.0),
        policies={"mxnet": placed("mxnet"), "proportional": placed("proportional"), "psld": placed("psld")},
        servers_beside_workers=False,
        warm_up=0,
    ),
    _six_slow("psld-scale-out", "vgg16 on eight servers, six of which are slow from 120 s on", SCALE_OUT),
    _six_slow("psld-sensitivity-threshold", "The same: psld with several thresholds for more servers", THRESHOLDS),
    *(_restarted(model) for model in ("resnet50", "vgg16")),
    job(
        "psld-transient",
        "resnet50 on four servers, of which two are slow from 90 s to 360 s",
        "resnet50",
        4,
        {2: _transient(APPEAR_S, RECOVER_S), 3: _transient(APPEAR_S, RECOVER_S)},
        spec=_timed("psld-transient", "resnet50", 4, END_S),
        policies=TRANSIENT,
        warm_up=0,
    ),
    _sensitivity("epsilon", (0.0, 0.05, 0.1, 0.2, 0.4)),
    _sensitivity("theta", (0.25, 0.5, 1.0, 2.0, 4.0)),
    _block_sizes(),
)
