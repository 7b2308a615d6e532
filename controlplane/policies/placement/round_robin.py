"""Servers in turn (PSLD section 2.2): TensorFlow's placement with ``literal``, otherwise with balanced bytes (ruling
15).

TensorFlow assigns whole tensors in turn, regardless of size: with 3 or 6 servers the period of a network's layers
coincides with the number of servers, and one server holds more than twice its part (Table 1). Assigning blocks of 4 MiB
in turn is hardly better. So by default each block, largest first, goes to the server with the fewest bytes: equal
blocks go to servers in turn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from controlplane.policies.catalogue.placement import RoundRobinParameters
from controlplane.policies.placement.loads import Slice, balanced, cut_tensors, hand_out, loads_in_words, loads_of
from controlplane.protocol.orders import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """Uses sizes only; assumes equal servers."""

    name: ClassVar[str] = "round-robin"

    parameters: RoundRobinParameters

    def place(self, blocks: Sequence[Slice], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Servers take blocks in ascending order of their index; with ``literal``, each slice is a tensor."""
        if not self.parameters.literal:
            placed = balanced(blocks, servers)
            return placed, self._reason(placed, servers, "in turn")
        return self._tensors_in_turn([[piece] for piece in blocks], servers)

    def place_tensors(self, tensor_sizes: Sequence[int], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Cut tensors into blocks; with ``literal`` all blocks of tensor ``i`` go to server ``i mod n``."""
        tensors = cut_tensors(tensor_sizes, self.parameters.block_bytes)
        if not self.parameters.literal:
            return self.place([piece for tensor in tensors for piece in tensor], servers)
        return self._tensors_in_turn(tensors, servers)

    def _tensors_in_turn(self, tensors: Sequence[Sequence[Slice]], servers: Sequence[int]) -> tuple[list[Block], str]:
        order = sorted(servers)
        slices = [piece for tensor in tensors for piece in tensor]
        owner = [number for number, tensor in enumerate(tensors) for _ in tensor]
        placed = hand_out(slices, range(len(slices)), servers, lambda index, _: order[owner[index] % len(order)])
        return placed, self._reason(placed, servers, f"by {len(tensors)} tensors in turn")

    @staticmethod
    def _reason(placed: Sequence[Block], servers: Sequence[int], how: str) -> str:
        return f"{len(placed)} blocks over {len(servers)} servers {how}: {loads_in_words(loads_of(placed, servers))}"
