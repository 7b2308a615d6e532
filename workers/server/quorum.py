"""Whose contributions close an iteration. Pure: no locks, no sockets, no values of parameters.

A contribution is known by (instance, iteration, block): an instance is one life of a process and has one gradient
per iteration. Its incarnation fences it like its generation, but does not make the same gradient a second one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from controlplane.protocol.orders import ServerOrders
from workers.transport.handshake import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The members of a generation, and the iteration from which each counts."""

    incarnation: int
    generation: int
    members: Mapping[Peer, int]

    @property
    def term(self) -> tuple[int, int]:
        """Generations compare by (incarnation, generation)."""
        return self.incarnation, self.generation

    def counting(self, iteration: int) -> set[Peer]:
        """Who owes a contribution to ``iteration``."""
        return {member for member, first in self.members.items() if first <= iteration}

    def counts(self, peer: Peer, iteration: int) -> bool:
        """Whether ``peer`` owes a contribution to ``iteration``."""
        first = self.members.get(peer)
        return first is not None and first <= iteration


NOBODY = Roster(incarnation=-1, generation=-1, members={})
"""The roster of a server that has had no orders."""


def roster_of(orders: ServerOrders) -> Roster:
    """The roster that ``orders`` name."""
    members = {Peer(member.rank, member.instance): member.from_iteration for member in orders.members}
    return Roster(incarnation=orders.incarnation, generation=orders.generation, members=members)


class Verdict(Enum):
    """What is to happen to a contribution."""

    COUNT = "count it"
    REPEATED = "it counts already"
    EARLY = "its generation or iteration is not here yet"
    STALE = "its generation is over, or its sender does not count in that iteration"


@dataclass(slots=True)
class Quorum:
    """The open iteration of one block: who has contributed, who was expected, who made the one before."""

    iteration: int = 0
    contributed: set[Peer] = field(default_factory=set)
    owed: set[Peer] = field(default_factory=set)
    """Who counts and has not contributed yet; the iteration closes when the last of them has."""
    expected: set[Peer] = field(default_factory=set)
    """Everybody who counted at any time since the iteration was opened."""
    before: frozenset[Peer] = frozenset()
    """Who contributed to the iteration before."""

    def judge(self, roster: Roster, term: tuple[int, int], peer: Peer, iteration: int) -> Verdict:
        """What is to happen to ``peer``'s contribution to ``iteration``, sent under ``term``."""
        if peer in self._makers(iteration):
            return Verdict.REPEATED
        if term < roster.term or iteration < self.iteration:
            return Verdict.STALE
        if term > roster.term or iteration > self.iteration:
            return Verdict.EARLY
        return Verdict.COUNT if roster.counts(peer, iteration) else Verdict.STALE

    def appoint(self, roster: Roster) -> bool:
        """Expect who counts in ``roster``; True if that completes the open iteration."""
        counting = roster.counting(self.iteration)
        self.owed = counting - self.contributed
        self.expected |= counting
        return bool(counting) and not self.owed

    def count(self, peer: Peer) -> bool:
        """``peer`` has contributed; True if that completes the open iteration."""
        self.contributed.add(peer)
        self.owed.discard(peer)
        return not self.owed

    def close(self, roster: Roster) -> frozenset[Peer]:
        """Open the next iteration; the answer is who had been expected and left without contributing."""
        missing = frozenset(self.expected - self.contributed)
        self.before = frozenset(self.contributed)
        self.iteration += 1
        self.contributed, self.expected = set(), set()
        self.appoint(roster)
        return missing

    def _makers(self, iteration: int) -> set[Peer] | frozenset[Peer]:
        if iteration == self.iteration:
            return self.contributed
        return self.before if iteration == self.iteration - 1 else frozenset()
