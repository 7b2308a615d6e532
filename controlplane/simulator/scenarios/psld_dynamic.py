"""PSLD section 6: servers that become slow and recover, scale-out, and how sensitive the algorithm is."""

from typing import Final

from controlplane.protocol.spec import JobSpec, Stop, Workload
from controlplane.simulator.network import GBIT, ServerChange, ServerSpec
from controlplane.simulator.scenario import Scenario
from controlplane.simulator.scenarios.psld import BATCH, USUAL, Model, job, placed, slowed

APPEAR_S, RECOVER_S, END_S = 90.0, 360.0, 600.0
"""Fig. 18."""


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
        workers=count,
        servers=count,
        batch_size=BATCH[model],
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
    )


SCENARIOS = (
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
