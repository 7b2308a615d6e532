"""A network on paper: servers of given bandwidth and latency, in the closed loop of transfers and placements."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.core.choices import PlacementDecision, PlacementRequest, Transfer
from controlplane.protocol.orders import Block

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What an exchange of ``s`` bytes takes: ``s / MiB * per_mib_s + latency_s``."""

    per_mib_s: float = 0.01
    latency_s: float = 0.0005

    def takes_s(self, size: int) -> float:
        return size / MIB * self.per_mib_s + self.latency_s


@dataclass(slots=True, kw_only=True)
class Run:
    """One job on the network, iteration by iteration."""

    policy: Any
    servers: dict[int, Server]
    blocks: list[Block]
    workers: int = 4
    noise: float = 0.02
    seed: int = 1
    initial: int = 0
    spare: int = 0

    def train(
        self, iterations: int, *, events: Mapping[int, Callable[["Run"], None]] | None = None
    ) -> tuple[list[float], list[PlacementDecision]]:
        """Seconds of each iteration's exchange (the slowest server, probes beside it), and all decisions."""
        chance = random.Random(self.seed)
        state = self.policy.begin() if hasattr(self.policy, "begin") else None
        probes: dict[int, int] = {}
        times, decisions = [], []
        initial = self.initial or len(self.servers)
        for iteration in range(iterations):
            if events and iteration in events:
                events[iteration](self)
            transfers = self.exchange(iteration, probes, chance)
            times.append(max(seen.seconds for seen in transfers))
            if state is None:
                continue
            request = PlacementRequest(
                iteration=iteration,
                blocks=self.blocks,
                servers=sorted(self.servers),
                initial=initial,
                spare=self.spare,
                seed=self.seed * 100_003 + iteration,
            )
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=self.policy.state_type)
            state, decision = self.policy.decide(request, transfers, state)
            decisions.append(decision)
            self.blocks, probes = decision.blocks or self.blocks, decision.probes
        return times, decisions

    def exchange(self, iteration: int, probes: Mapping[int, int], chance: random.Random) -> list[Transfer]:
        held = loads(self.blocks, self.servers)
        wanted = [(server, held[server], False) for server in sorted(self.servers) if held[server]]
        wanted += [(server, size, True) for server, size in sorted(probes.items()) if server in self.servers]
        return [
            Transfer(
                rank=rank,
                server=server,
                iteration=iteration,
                bytes=size,
                seconds=self.servers[server].takes_s(size) * chance.lognormvariate(0.0, self.noise),
                is_probe=is_probe,
            )
            for rank in range(self.workers)
            for server, size, is_probe in wanted
        ]


def loads(blocks: Sequence[Block], servers: Mapping[int, Server] | Sequence[int]) -> dict[int, int]:
    held = dict.fromkeys(sorted(servers), 0)
    for block in blocks:
        held[block.server] += (block.stop - block.start) * 4
    return held


def equal_blocks(count: int, *, mib: float = 1.0) -> list[tuple[int, int]]:
    size = int(mib * MIB) // 4
    return [(index * size, (index + 1) * size) for index in range(count)]


def start(policy: Any, servers: dict[int, Server], *, blocks: int = 100, mib: float = 1.0, **settings: Any) -> Run:
    placed, _ = policy.place(equal_blocks(blocks, mib=mib), sorted(servers))
    return Run(policy=policy, servers=servers, blocks=placed, **settings)
