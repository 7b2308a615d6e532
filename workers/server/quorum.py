"""Which contributions complete an iteration. Pure: no locks, no sockets, no parameter values.

A contribution is identified by (instance, iteration, block): an instance is one start of a process and has one gradient
per iteration. Its incarnation, like its generation, only fences it: the same gradient in another incarnation does not
count again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from controlplane.protocol.orders import Apply, ServerOrders
from controlplane.protocol.training import Aggregation
from workers.transport.handshake import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The members of a generation, the first iteration in which each counts, and how their contributions are applied.

    The fields after ``members`` are those of ``ServerOrders``.
    """

    incarnation: int
    generation: int
    members: Mapping[Peer, int]
    apply: Apply = "quorum"
    apply_from: int = 0
    skip_to: int = 0
    scale: float = 1.0
    gather: int = 1
    aggregation: Aggregation = "sample-weighted"
    quorums: Mapping[int, frozenset[int]] = field(default_factory=dict)
    named_from: int | None = None
    passed: Mapping[int, int] = field(default_factory=dict)
    placement: int = 0

    @property
    def term(self) -> tuple[int, int]:
        """Generations compare by (incarnation, generation)."""
        return self.incarnation, self.generation

    def names(self, iteration: int) -> bool:
        """Whether ``iteration`` consists of the updates of explicitly named ranks.

        Names remain valid after a change of the barrier: an iteration that is still open then has workers that were
        ordered to skip it.
        """
        return iteration in self.quorums or (self.named_from is not None and iteration >= self.named_from)

    def named(self, iteration: int, rank: int) -> bool:
        """Whether the contribution of ``rank`` can still count in ``iteration``: no ranks are named, or it is one of
        them.
        """
        return iteration not in self.quorums or rank in self.quorums[iteration]

    def counting(self, iteration: int) -> set[Peer]:
        """The ranks expected to contribute to ``iteration``."""
        return {peer for peer, first in self.members.items() if first <= iteration and self.named(iteration, peer.rank)}

    def counts(self, peer: Peer, iteration: int) -> bool:
        """Whether ``peer`` is a member in ``iteration``, named or not."""
        first = self.members.get(peer)
        return first is not None and first <= iteration


NO_ROSTER = Roster(incarnation=-1, generation=-1, members={})
"""The roster of a server that has not received orders."""


def roster_of(orders: ServerOrders) -> Roster:
    """The roster in ``orders``."""
    return Roster(
        incarnation=orders.incarnation,
        generation=orders.generation,
        members={Peer(member.rank, member.instance): member.from_iteration for member in orders.members},
        apply=orders.apply,
        apply_from=orders.apply_from,
        skip_to=orders.skip_to,
        scale=orders.scale,
        gather=orders.gather,
        aggregation=orders.aggregation,
        quorums={iteration: frozenset(ranks) for iteration, ranks in orders.quorums.items()},
        named_from=orders.named_from,
        passed=dict(orders.passed),
        placement=orders.placement_version,
    )


class Verdict(Enum):
    """The verdict on a contribution."""

    COUNT = "count it"
    REPEATED = "it counts already"
    EARLY = "its generation or iteration is not here yet"
    STALE = "its generation is over, or its sender does not count in that iteration"
    LATE = "others were named for its iteration: drop it"


@dataclass(slots=True)
class Quorum:
    """The open iteration of one block: who has contributed, who is expected, who contributed to the previous one."""

    iteration: int = 0
    contributed: set[Peer] = field(default_factory=set)
    missing: set[Peer] = field(default_factory=set)
    """Members that have not contributed yet; the last one's contribution completes the iteration."""
    expected: set[Peer] = field(default_factory=set)
    """All ranks that were members at any time since the iteration was opened."""
    before: frozenset[Peer] = frozenset()
    """Who contributed to the previous iteration."""

    def judge(self, roster: Roster, term: tuple[int, int], peer: Peer, iteration: int) -> Verdict:
        """The verdict on ``peer``'s contribution to ``iteration``, sent under ``term``."""
        if peer in self._makers(iteration):
            return Verdict.REPEATED
        if roster.names(iteration) and (iteration < self.iteration or not roster.named(iteration, peer.rank)):
            return Verdict.LATE
        if term < roster.term or iteration < self.iteration:
            return Verdict.STALE
        if term > roster.term or iteration > self.iteration:
            return Verdict.EARLY
        return Verdict.COUNT if roster.counts(peer, iteration) else Verdict.STALE

    def appoint(self, roster: Roster) -> bool:
        """Expect the members that count in ``roster``; return whether that completes the open iteration."""
        counting = roster.counting(self.iteration)
        self.missing = counting - self.contributed
        self.expected |= counting
        return self._is_complete(roster)

    def count(self, peer: Peer, roster: Roster) -> bool:
        """Count the contribution of ``peer``; return whether that completes the open iteration."""
        self.contributed.add(peer)
        self.missing.discard(peer)
        return self._is_complete(roster)

    def close(self, roster: Roster) -> frozenset[Peer]:
        """Open the next iteration; return the members that were expected and left without contributing."""
        late = {peer for peer in self.expected if not roster.named(self.iteration, peer.rank)}
        missing = frozenset(self.expected - self.contributed - late)
        self.before = frozenset(self.contributed)
        self.iteration += 1
        self.contributed, self.expected = set(), set()
        self.appoint(roster)
        return missing

    def _is_complete(self, roster: Roster) -> bool:
        """Whether all expected contributions have arrived. Without members there is no quorum, unless all named ranks
        have left.
        """
        if roster.names(self.iteration):
            return self.iteration in roster.quorums and not self.missing
        return not self.missing and bool(roster.counting(self.iteration))

    def _makers(self, iteration: int) -> set[Peer] | frozenset[Peer]:
        if iteration == self.iteration:
            return self.contributed
        return self.before if iteration == self.iteration - 1 else frozenset()
