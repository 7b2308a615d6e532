"""TensorFlow's placement: servers in turn, whatever the size (PSLD section 2.2; ruling 15)."""

from collections.abc import Sequence
from typing import ClassVar

from controlplane.core.blocks import ELEMENT_BYTES
from controlplane.policies.wording import listing
from controlplane.protocol.orders import Block


class RoundRobin:
    """Block ``i`` goes to server ``i mod n``. Counts blocks, not bytes: unequal blocks give unequal servers."""

    name: ClassVar[str] = "round-robin"

    def place(self, blocks: Sequence[tuple[int, int]], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Servers take blocks in ascending order of their index."""
        if not servers:
            raise ValueError(f"{len(blocks)} blocks cannot be placed: found no server, expected at least one")
        order = sorted(servers)
        placed = [
            Block(index=index, start=start, stop=stop, server=order[index % len(order)])
            for index, (start, stop) in enumerate(blocks)
        ]
        return placed, _reason(placed, order)


def _reason(placed: Sequence[Block], servers: Sequence[int]) -> str:
    mebibytes = dict.fromkeys(servers, 0.0)
    for block in placed:
        mebibytes[block.server] += (block.stop - block.start) * ELEMENT_BYTES / 2**20
    loads = listing(f"s{server} {mebibytes[server]:.3g} MiB" for server in servers)
    return f"{len(placed)} blocks over {len(servers)} servers in turn: {loads}"
