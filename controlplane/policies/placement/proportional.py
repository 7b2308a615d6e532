"""The strawman of PSLD section 6.1: bytes proportional to each server's measured speed.

Speed is the bytes on a server divided by the time of an exchange with it. For a server with few bytes that is mostly
latency, so a server that recovers rarely gets more. This is the known weakness of the policy and is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.choices import PlacementDecision, PlacementRequest, Transfer
from controlplane.policies.catalogue.placement import ProportionalParameters
from controlplane.policies.placement.communication import Moments
from controlplane.policies.placement.loads import bytes_of, hand_out, largest_first, loads_in_words, loads_of
from controlplane.policies.placement.movement import moved
from controlplane.policies.placement.rebalancing import Measuring, ServersState, is_due, take_note, unchanged
from controlplane.policies.wording import number
from controlplane.protocol.orders import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportional(Measuring):
    """Reassigns blocks when servers' speeds differ by more than the allowed variance."""

    name: ClassVar[str] = "proportional"

    parameters: ProportionalParameters

    def decide(
        self, request: PlacementRequest, transfers: Sequence[Transfer], state: ServersState
    ) -> tuple[ServersState, PlacementDecision]:
        """Check the placement every few iterations."""
        state = take_note(request, transfers, state, forgetting=self.parameters.forgetting)
        speeds = _speeds(request.servers, state.moments)
        if not is_due(request, state, every=self.parameters.every) or not speeds:
            return state, unchanged("no check of the placement is due" if speeds else "no server has been measured yet")
        state = msgspec.structs.replace(state, looked=request.iteration)
        variance = (max(speeds.values()) - min(speeds.values())) / min(speeds.values())
        limit = self.parameters.variance
        lost = any(block.server not in speeds for block in request.blocks)
        if variance <= limit and not lost:
            return state, unchanged(f"servers' speeds vary by {number(variance)}, at most {number(limit)} is tolerated")
        blocks = _in_proportion(request.blocks, speeds)
        reason = (
            f"servers' speeds vary by {number(variance)}, above {number(limit)}: "
            f"{len(moved(request.blocks, blocks))} blocks move; {loads_in_words(loads_of(blocks, request.servers))}"
        )
        return state, PlacementDecision(reason=reason, blocks=blocks)


def _speeds(servers: Sequence[int], moments: Mapping[int, Moments]) -> dict[int, float]:
    """Last measured MiB per second; a server that was never measured gets the average."""
    measured = {
        server: moments[server].size / moments[server].seconds for server in sorted(servers) if server in moments
    }
    usual = sum(measured.values()) / max(1, len(measured))
    return {server: measured.get(server, usual) for server in sorted(servers)} if measured else {}


def _in_proportion(blocks: Sequence[Block], speeds: Mapping[int, float]) -> list[Block]:
    """Assign the largest block first, each to the server furthest below its target."""
    slices = [(block.start, block.stop) for block in blocks]
    per_speed = sum(map(bytes_of, slices)) / sum(speeds.values())

    def choose(_: int, loads: dict[int, int]) -> int:
        return max(loads, key=lambda server: (speeds[server] * per_speed - loads[server], -server))

    return hand_out(slices, largest_first(slices), list(speeds), choose)
