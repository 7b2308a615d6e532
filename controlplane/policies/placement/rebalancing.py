"""The common part of placements that decide while the job runs: their state, when they check, and which servers they
probe.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.choices import PlacementDecision, PlacementRequest, Transfer
from controlplane.policies.catalogue.placement import ProbingParameters, RebalancingParameters
from controlplane.policies.placement.communication import Line, Moments, exchange_s, lines_of, remember
from controlplane.policies.placement.loads import MEBIBYTE, Slice, balanced, cut_tensors, loads_in_words, loads_of
from controlplane.policies.placement.movement import moved
from controlplane.policies.wording import listing, seconds
from controlplane.protocol.base import Value
from controlplane.protocol.orders import Block

LITTLE = 0.25
"""A server with less than this fraction of an even share is probed: its exchanges say little about larger ones.
"""

SMALLEST_PROBE = 4096


class ServersState(Value, frozen=True, kw_only=True):
    """Measurements of each server, and since when a server has had no blocks."""

    moments: dict[int, Moments] = {}
    looked: int | None = None
    """The iteration of the last check of the placement."""
    idle_since: dict[int, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """Even bytes at first (ruling 15), then according to measurements of the servers."""

    state_type: ClassVar[type[msgspec.Struct]] = ServersState

    parameters: RebalancingParameters

    def place(self, blocks: Sequence[Slice], servers: Sequence[int]) -> tuple[list[Block], str]:
        """Distribute bytes evenly, before anything is measured."""
        placed = balanced(blocks, servers)
        spread = loads_in_words(loads_of(placed, servers))
        return placed, f"{len(placed)} blocks over {len(servers)} servers, evenly until they are measured: {spread}"

    def place_tensors(self, tensor_sizes: Sequence[int], servers: Sequence[int]) -> tuple[list[Block], str]:
        """The same, after cutting the tensors into blocks."""
        cut = cut_tensors(tensor_sizes, self.parameters.block_bytes)
        return self.place([piece for tensor in cut for piece in tensor], servers)

    def begin(self) -> ServersState:
        """Nothing is measured."""
        return ServersState()


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking(Measuring):
    """Checks the placement every few iterations by a line for each server, and probes servers with few bytes."""

    parameters: ProbingParameters

    @property
    def probes(self) -> bool:
        """Whether servers are probed at all."""
        return True

    @abstractmethod
    def look(self, request: PlacementRequest, lines: Mapping[int, Line]) -> PlacementDecision:
        """Decide whether to move blocks, given the model of each server's exchange times."""

    def decide(
        self, request: PlacementRequest, transfers: Sequence[Transfer], state: ServersState
    ) -> tuple[ServersState, PlacementDecision]:
        """Record one iteration; check the placement when that is due."""
        parameters = self.parameters
        state = take_note(request, transfers, state, forgetting=parameters.forgetting)
        lines = reachable(request, state)
        if not lines:
            return state, unchanged("no server has been measured yet")
        probes = probes_of(request, state, lines, parameters) if self.probes else {}
        retire = retired(request, state, parameters)
        if not is_due(request, state, every=parameters.every):
            return state, unchanged("no check of the placement is due", probes=probes, retire=retire)
        state = msgspec.structs.replace(state, looked=request.iteration)
        decision = self.look(request, lines)
        return state, msgspec.structs.replace(decision, probes=probes, retire=retire if not decision.blocks else [])


def take_note(
    request: PlacementRequest, transfers: Sequence[Transfer], state: ServersState, *, forgetting: float
) -> ServersState:
    """The state after one more iteration; lost servers are left out."""
    known = remember(state.moments, transfers, forgetting=forgetting)
    loads = loads_of(request.blocks, request.servers)
    return ServersState(
        moments={server: known[server] for server in sorted(known) if server in request.servers},
        looked=state.looked if state.looked is not None else request.iteration,
        idle_since={
            server: state.idle_since.get(server, request.iteration) for server in request.servers if not loads[server]
        },
    )


def is_due(request: PlacementRequest, state: ServersState, *, every: int) -> bool:
    """Whether a check is due: at the configured interval, and immediately if a server with blocks is lost."""
    lost = any(block.server not in request.servers for block in request.blocks)
    return lost or request.iteration - (state.looked or 0) >= every


def reachable(request: PlacementRequest, state: ServersState) -> dict[int, Line]:
    """The line of each server; empty while nothing was measured."""
    return lines_of(state.moments, request.servers)


def present_s(request: PlacementRequest, lines: Mapping[int, Line]) -> float:
    """The time of an exchange under the present placement; infinite if a block is on a lost server."""
    loads = loads_of(request.blocks, request.servers)
    return exchange_s(lines, loads) if loads.keys() == lines.keys() else float("inf")


def is_worth_it(now_s: float, then_s: float, parameters: ProbingParameters, *, margin: float) -> tuple[bool, str]:
    """Whether the predicted gain exceeds the fraction ``margin`` and ``least_gain_s``, and the reason."""
    gain = 1 - then_s / now_s if now_s > 0 else 0.0
    words = f"predicted gain {gain:.1%} (needed: above {margin:.1%})"
    if gain <= margin:
        return False, words
    saved_s, least_s = now_s - then_s, parameters.least_gain_s
    if saved_s <= least_s:
        return False, f"{words}, but only {seconds(saved_s)} of an exchange (needed: above {seconds(least_s)})"
    return True, words


def speed_variance(lines: Mapping[int, Line], loads: Mapping[int, int]) -> float:
    """(best - worst) / worst of the servers' speeds (PSLD section 2.3), each at its present load.

    Servers without blocks have no speed.
    """
    speeds = [loads[server] / line.mean(loads[server]) for server, line in lines.items() if loads.get(server)]
    return (max(speeds) - min(speeds)) / min(speeds) if speeds else 0.0


def probes_of(
    request: PlacementRequest, state: ServersState, lines: Mapping[int, Line], parameters: ProbingParameters
) -> dict[int, int]:
    """Servers with few bytes, and the sizes of the transfers that probe them (ruling 13).

    A probe is predicted to take at most half of the present exchange time: it runs in parallel and causes no delay.
    """
    loads = loads_of(request.blocks, request.servers)
    even = sum(loads.values()) / max(1, len(loads))
    if not parameters.probe_every or not lines:
        return {}
    limit_s = present_s(request, lines) / 2
    probes = {}
    for server in sorted(lines):
        latest = state.moments.get(server, Moments()).iteration
        if loads.get(server, 0) >= LITTLE * even:
            continue
        if loads[server] > 0 and latest < 0:
            continue
        if (request.iteration + server) % parameters.probe_every == 0:
            probes[server] = _probe_bytes(lines[server], limit_s, parameters.probe_bytes)
    return probes


def retired(request: PlacementRequest, state: ServersState, parameters: ProbingParameters) -> list[int]:
    """Servers that have been without blocks for long enough to be released."""
    if not parameters.retire_after:
        return []
    return sorted(
        server for server, since in state.idle_since.items() if request.iteration - since >= parameters.retire_after
    )


def unchanged(
    reason: str,
    *,
    now_s: float | None = None,
    probes: Mapping[int, int] | None = None,
    add: int = 0,
    retire: Sequence[int] = (),
) -> PlacementDecision:
    """A decision without moves."""
    return PlacementDecision(reason=reason, now_s=now_s, probes=dict(probes or {}), add=add, retire=list(retire))


def change(request: PlacementRequest, blocks: Sequence[Block], now_s: float, then_s: float) -> str:
    """``3 of 25 blocks (12 MiB) move: an exchange should take 0.21 s instead of 0.48 s; s0 50 MiB, s1 50 MiB``."""
    gone = moved(request.blocks, blocks)
    mebibytes = sum(block.bytes for block in gone) / MEBIBYTE
    instead = f" instead of {seconds(now_s)}" if now_s != float("inf") else ", and now a server is missing"
    left = [f"s{server}" for server, load in loads_of(blocks, request.servers).items() if not load]
    sentence = (
        f"{len(gone)} of {len(blocks)} blocks ({mebibytes:.3g} MiB) move: an exchange should take "
        f"{seconds(then_s)}{instead}; {loads_in_words(loads_of(blocks, request.servers))}"
    )
    return sentence + (f"; left without blocks: {listing(left)}" if left else "")


def _probe_bytes(line: Line, limit_s: float, most: int) -> int:
    if line.alpha <= 0 or limit_s == float("inf"):
        return most
    fitting = int((limit_s - line.beta) / line.alpha * MEBIBYTE)
    return max(SMALLEST_PROBE, min(most, fitting))
