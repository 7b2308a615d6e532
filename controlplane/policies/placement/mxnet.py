"""MXNet's placement (PSLD section 2.2, Table 2), as its key-value store actually does it (ruling 15).

A tensor of at least 10^6 elements is split evenly over all servers; any other goes as a whole to the server ``(index *
9973) mod n``, where ``index`` is its position in the parameter list. The paper calls this random; it is a fixed hash,
and as skewed as round robin if the period of the layers coincides with the number of servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controlplane.core.placing import cut_blocks
from controlplane.policies.catalogue.placement import MxnetParameters
from controlplane.policies.placement.loads import Slice, ensure_servers, loads_in_words, loads_of
from controlplane.protocol.orders import Block

SCATTER = 9973
"""A prime: neighbours in the list go to different servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mxnet:
    """Uses each tensor's size and position; assumes equal servers."""

    name: ClassVar[str] = "mxnet"

    parameters: MxnetParameters

    def place(self, blocks: Sequence[Slice], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Each slice counts as a tensor; large ones become one block per server."""
        return self._scatter(blocks, servers)

    def place_tensors(self, tensor_sizes: Sequence[int], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Assign whole tensors; no block exceeds the largest size, however large a server's part."""
        tensors: list[Slice] = []
        for size in tensor_sizes:
            start = tensors[-1][1] if tensors else 0
            tensors.append((start, start + size))
        return self._scatter(tensors, servers)

    def _scatter(self, tensors: Sequence[Slice], servers: Sequence[int]) -> tuple[list[Block], str]:
        ensure_servers(len(tensors), servers)
        order = sorted(servers)
        pieces: list[tuple[Slice, int]] = []
        split = 0
        for index, (start, stop) in enumerate(tensors):
            if stop - start < self.parameters.large:
                pieces += self._cut(start, stop, order[index * SCATTER % len(order)])
                continue
            split += 1
            edges = [start + (stop - start) * part // len(order) for part in range(len(order) + 1)]
            for part, server in enumerate(order):
                pieces += self._cut(edges[part], edges[part + 1], server)
        placed = [
            Block(index=index, start=start, stop=stop, server=server)
            for index, ((start, stop), server) in enumerate(pieces)
        ]
        return placed, (
            f"{split} of {len(tensors)} tensors have {self.parameters.large:,} elements or more and are split over "
            f"{len(order)} servers, the others are scattered: {loads_in_words(loads_of(placed, order))}"
        )

    def _cut(self, start: int, stop: int, server: int) -> list[tuple[Slice, int]]:
        cut = cut_blocks([stop - start], block_bytes=self.parameters.block_bytes)
        return [((start + low, start + high), server) for low, high in cut]
