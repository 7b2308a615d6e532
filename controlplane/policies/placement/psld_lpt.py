"""psld-lpt, not from the papers (ruling 16): the largest block first, each to the server predicted to finish first.

Uses PSLD's model of communication, without its superior set and its costs: a slow server gets as many bytes as it can
exchange in the time of the others, and none if its latency alone is too long. Servers with few bytes are probed, and
blocks move when the predicted gain exceeds a margin, so a transient straggler loses its blocks and later regains them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controlplane.core.choices import PlacementDecision, PlacementRequest
from controlplane.policies.catalogue.placement import PsldLptParameters
from controlplane.policies.placement import rebalancing
from controlplane.policies.placement.communication import Line, exchange_s
from controlplane.policies.placement.loads import bytes_of, hand_out, largest_first, loads_of
from controlplane.policies.placement.movement import settle
from controlplane.policies.placement.psld import finish_first
from controlplane.policies.placement.rebalancing import Looking


@dataclass(frozen=True, slots=True, kw_only=True)
class PsldLpt(Looking):
    """Checks the placement every few iterations; nothing in it is random."""

    name: ClassVar[str] = "psld-lpt"

    parameters: PsldLptParameters

    def look(self, request: PlacementRequest, lines: Mapping[int, Line]) -> PlacementDecision:
        """The largest block first, each to the server that finishes it first."""
        slices = [(block.start, block.stop) for block in request.blocks]
        blocks = hand_out(
            slices, largest_first(slices), list(lines), lambda i, loads: finish_first(lines, bytes_of(slices[i]), loads)
        )
        if self.parameters.minimal_movement:
            blocks = settle(request.blocks, blocks, lines, homes=lines.keys())
        now_s = rebalancing.present_s(request, lines)
        then_s = exchange_s(lines, loads_of(blocks, lines))
        worth, words = rebalancing.is_worth_it(now_s, then_s, self.parameters, margin=self.parameters.margin)
        if not worth:
            return rebalancing.unchanged(words, now_s=now_s)
        reason = f"{words}; {rebalancing.change(request, blocks, now_s, then_s)}"
        return PlacementDecision(reason=reason, blocks=blocks, now_s=now_s, predicted_s=then_s)
