"""PSLD section 2.2: the parameters of ResNet101 on each server (Tables 1 and 2), a result of placement alone."""

from collections.abc import Sequence
from typing import Final

from controlplane.policies import registry
from controlplane.protocol.spec import Choice
from controlplane.simulator.reproduction.claims import Claim, Measure, Played
from controlplane.simulator.scenarios.tensors import RESNET101

TENSORFLOW: Final = (
    (44.5,),
    (21.6, 22.9),
    (2.0, 29.0, 13.5),
    (9.9, 10.3, 11.7, 12.7),
    (8.5, 7.1, 9.9, 12.2, 6.8),
    (1.0, 15.2, 6.8, 1.0, 13.9, 6.7),
)
"""Table 1: millions of parameters on each of 1 to 6 servers."""
MXNET: Final = (
    (44.5,),
    (22.3, 22.3),
    (7.5, 31.1, 5.9),
    (10.9, 11.0, 11.4, 11.3),
    (9.7, 8.8, 9.0, 8.3, 8.7),
    (3.7, 15.6, 3.0, 3.8, 15.6, 2.9),
)
"""Table 2."""


def millions(placement: Choice, servers: int) -> list[float]:
    """Millions of ResNet101's parameters on each server."""
    policy = registry.resolve("placement", placement)
    blocks, _ = policy.place_tensors(RESNET101, range(servers))
    held = [0] * servers
    for block in blocks:
        held[block.server] += block.stop - block.start
    return [count / 1e6 for count in held]


def _off(placement: Choice, table: Sequence[Sequence[float]]) -> Measure:
    def measure(_: Sequence[Played]) -> float:
        return max(
            abs(ours - theirs)
            for servers, row in enumerate(table, start=1)
            for ours, theirs in zip(millions(placement, servers), row, strict=True)
        )

    return Measure(f"largest distance of a cell from the table, in millions, placement {placement.name}", measure)


def _table(number: int, system: str, placement: Choice, table: Sequence[Sequence[float]]) -> Claim:
    return Claim(
        where=f"Table {number}",
        statement=f"ResNet101 on 1 to 6 servers with {system}'s placement: each of the 21 cells, in millions",
        figure=0.0,
        kind="equal",
        basis="predicted",
        tolerance=0.1,
        otherwise=2.2,
        measure=_off(placement, table),
        note="The largest distance of a cell; the paper's have one digit. Assigning equal blocks in turn would "
        "differ by millions (ruling 15).",
    )


TABLE_CLAIMS: Final = (
    _table(1, "TensorFlow", Choice(name="round-robin", parameters={"literal": True}), TENSORFLOW),
    _table(2, "MXNet", Choice(name="mxnet"), MXNET),
)
