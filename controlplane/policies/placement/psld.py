"""PSLD (section 4, Alg. 1-3): blocks go to a superior set of servers, by predicted time and load; a few explore.

Rulings 12 to 14 apply unless ``literal``:

- exploring: a block is put on a random server only if that server is predicted not to be the slowest, and only
  epsilon of all bytes; servers with few or no blocks are timed by probes instead. In the paper a block may go to any
  server: with two servers at a fiftieth of the speed, that makes training 2 to 3 times slower;
- trigger: blocks also move when the predicted gain exceeds a margin, since the straggler test does not fire when all
  servers have recovered. They do not move unless the gain exceeds ``least_gain_s``: for exchanges of a few milliseconds
  noise alone exceeds the threshold;
- the block being placed counts as assigned (otherwise the first cost divides by zero), and is in the mean that
  normalizes costs.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import msgspec

from controlplane.core.choices import PlacementDecision, PlacementRequest
from controlplane.policies.catalogue.placement import PsldParameters
from controlplane.policies.placement import rebalancing
from controlplane.policies.placement.communication import Line, average, exchange_s
from controlplane.policies.placement.loads import Slice, bytes_of, hand_out, largest_first, loads_of
from controlplane.policies.placement.movement import settle
from controlplane.policies.placement.rebalancing import Looking
from controlplane.policies.placement.superior import Bounds, superior_servers
from controlplane.policies.wording import listing, number, seconds
from controlplane.protocol.orders import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploit:
    """Alg. 2: the cheapest server of the superior set for one more block."""

    superior: Sequence[int]
    lines: Mapping[int, Line]
    theta: float
    """theta1 over theta0; theta0 is 1."""
    literal: bool = False

    def costs(self, size: int, loads: Mapping[int, int]) -> dict[int, float]:
        """Line 8 for each server, given the bytes assigned so far."""
        assigned = sum(loads.values()) + (0 if self.literal else size)
        usual = (self._usual(0, loads) if self.literal else 0.0) or self._usual(size, loads)
        return {
            server: self.lines[server].mean(loads[server] + size) / usual
            + self.theta * (loads[server] + size) / (assigned or size)
            for server in self.superior
        }

    def _usual(self, more: int, loads: Mapping[int, int]) -> float:
        """Line 4, omega: the mean time over the superior set if each server had ``more`` additional bytes."""
        return sum(self.lines[server].mean(loads[server] + more) for server in self.superior) / len(self.superior)

    def choose(self, size: int, loads: Mapping[int, int]) -> int:
        """Lines 5 to 12; of equal costs the first, or with ``literal`` (``<=``) the last."""
        costs = self.costs(size, loads)
        return min(costs, key=lambda server: (costs[server], -server if self.literal else server))


@dataclass(frozen=True, slots=True, kw_only=True)
class Psld(Looking):
    """Checks the placement every few iterations; all randomness comes from the request's seed."""

    name: ClassVar[str] = "psld"
    adds_servers: ClassVar[bool] = True

    parameters: PsldParameters

    @property
    def probes(self) -> bool:
        """Not with ``literal``, where blocks explore instead."""
        return not self.parameters.literal

    def look(self, request: PlacementRequest, lines: Mapping[int, Line]) -> PlacementDecision:
        """Stages 2 and 3 of Fig. 8, and section 4.4."""
        now_s = rebalancing.present_s(request, lines)
        size = sum(block.bytes for block in request.blocks) / len(lines)
        superior = superior_servers(lines, size, self._bounds)
        add, scaling = self._scale_out(request, lines, superior)
        if self.parameters.literal and add:
            return rebalancing.unchanged(scaling, now_s=now_s, add=add)
        blocks = self._assign(request, lines, superior)
        then_s = exchange_s(lines, loads_of(blocks, lines))
        worth, why = self._is_worth_it(request, lines, now_s, then_s)
        finding = f"superior: {listing(f's{server}' for server in superior)} of {len(lines)}; {why}{scaling}"
        if not worth:
            return rebalancing.unchanged(finding, now_s=now_s, add=add)
        reason = f"{finding}; {rebalancing.change(request, blocks, now_s, then_s)}"
        return PlacementDecision(reason=reason, blocks=blocks, now_s=now_s, predicted_s=then_s, add=add)

    @property
    def _bounds(self) -> Bounds:
        z = NormalDist().inv_cdf((1 + self.parameters.bounds) / 2)
        return Bounds(z=z, tolerance=self.parameters.tolerance, literal=self.parameters.literal)

    def _is_worth_it(
        self, request: PlacementRequest, lines: Mapping[int, Line], now_s: float, then_s: float
    ) -> tuple[bool, str]:
        """The straggler test and, by ruling 14, the gain: whether to reassign, and the numbers."""
        parameters = self.parameters
        variance = rebalancing.speed_variance(lines, loads_of(request.blocks, request.servers))
        straggles = variance > parameters.variance
        words = (
            f"speeds vary by {number(variance)} ({'above' if straggles else 'at most'} {number(parameters.variance)})"
        )
        if parameters.literal:
            return straggles or now_s == float("inf"), words
        worth, gained = rebalancing.is_worth_it(
            now_s, then_s, parameters, margin=0.0 if straggles else parameters.margin
        )
        return worth, f"{words}, {gained}"

    def _assign(self, request: PlacementRequest, lines: Mapping[int, Line], superior: Sequence[int]) -> list[Block]:
        """Alg. 3."""
        slices = [(block.start, block.stop) for block in request.blocks]
        exploit = Exploit(superior=superior, lines=lines, theta=self.parameters.theta, literal=self.parameters.literal)
        chance = random.Random(request.seed)
        if self.parameters.literal:
            return self._explore_freely(slices, exploit, chance)
        target = hand_out(
            slices, largest_first(slices), list(lines), lambda i, loads: exploit.choose(bytes_of(slices[i]), loads)
        )
        explored = self._explore_within(target, lines, chance)
        if not self.parameters.minimal_movement:
            return explored
        pinned = {b.index for a, b in zip(target, explored, strict=True) if a.server != b.server}
        return settle(request.blocks, explored, lines, homes=superior, pinned=pinned)

    def _explore_freely(self, slices: Sequence[Slice], exploit: Exploit, chance: random.Random) -> list[Block]:
        """With ``literal``: each block goes to any server with probability epsilon."""
        servers = sorted(exploit.lines)

        def choose(index: int, loads: dict[int, int]) -> int:
            if chance.random() <= 1 - self.parameters.epsilon:
                return exploit.choose(bytes_of(slices[index]), loads)
            return servers[int(chance.random() * len(servers))]

        return hand_out(slices, range(len(slices)), servers, choose)

    def _explore_within(self, target: Sequence[Block], lines: Mapping[int, Line], chance: random.Random) -> list[Block]:
        """Move at most epsilon of the bytes to other servers, where that does not make the exchange longer."""
        loads = loads_of(target, lines)
        limit_s, left = exchange_s(lines, loads), self.parameters.epsilon * sum(loads.values())
        servers = sorted(lines)
        explored = []
        for block in target:
            size, there = block.bytes, servers[int(chance.random() * len(servers))]
            explores = chance.random() < self.parameters.epsilon and size <= left and there != block.server
            if explores and lines[there].mean(loads[there] + size) <= limit_s:
                loads[there] += size
                loads[block.server] -= size
                left -= size
                block = msgspec.structs.replace(block, server=there)
            explored.append(block)
        return explored

    def _scale_out(
        self, request: PlacementRequest, lines: Mapping[int, Line], superior: Sequence[int]
    ) -> tuple[int, str]:
        """Section 4.4: how many servers to request, and the sentence for it.

        The threshold is a fraction of the initial number (ruling 12). A new server is predicted as the average of the
        present ones (section 5.1), and is requested only if it is predicted to help.
        """
        needed = self.parameters.scale_threshold * request.initial
        if len(superior) >= needed or not request.spare or request.starting:
            return 0, ""
        slices = [(block.start, block.stop) for block in request.blocks]
        with_new = dict(lines) | {max(lines) + 1: average(list(lines.values()))}
        without_s, with_s = (_best_s(slices, known) for known in (lines, with_new))
        few = f"{len(superior)} superior servers are fewer than {number(needed)}"
        if self.parameters.literal:
            return 1, f"{few}: one more is requested"
        if with_s >= without_s:
            return 0, f"; {few}, but one more would take it from {seconds(without_s)} to {seconds(with_s)}"
        return 1, f"; {few}: one more is requested, {seconds(with_s)} instead of {seconds(without_s)}"


def finish_first(lines: Mapping[int, Line], size: int, loads: Mapping[int, int]) -> int:
    """The server that is predicted to finish first with one more block of ``size`` bytes."""
    return min(lines, key=lambda server: (lines[server].mean(loads[server] + size), loads[server], server))


def _best_s(slices: Sequence[Slice], lines: Mapping[int, Line]) -> float:
    """The time of an exchange if each block, largest first, goes to the server that finishes it first."""
    placed = hand_out(
        slices, largest_first(slices), list(lines), lambda i, loads: finish_first(lines, bytes_of(slices[i]), loads)
    )
    return exchange_s(lines, loads_of(placed, lines))
