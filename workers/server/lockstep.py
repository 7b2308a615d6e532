"""Synchronous iterations of a block: what counts, and the sum that closes with the last contribution owed.

Where the control plane names who makes an iteration (backup workers), contributions are kept apart until it has:
exactly those named are summed, in the order of their ranks, and the others are dropped.
"""

from collections.abc import Callable

from workers.server.baggage import Open
from workers.server.contribution import Contribution, Sum
from workers.server.quorum import NOBODY, Quorum, Roster, Verdict
from workers.server.values import Values
from workers.transport.handshake import Peer

Note = Callable[[int, int], None]
"""Told (iteration, rank)."""


class Lockstep:
    """The open iteration of one block.

    Args:
        iteration: the one that is open.
        on_missing: told of members that left before they had contributed.
        on_late: told of contributions that came but do not count, since others made their iteration.
        before: whose contributions to the iteration before are in the values.
    """

    def __init__(
        self,
        values: Values,
        iteration: int,
        *,
        on_missing: Note,
        on_late: Note,
        before: frozenset[Peer] = frozenset(),
    ) -> None:
        self._values, self._on_missing, self._on_late = values, on_missing, on_late
        self._quorum = Quorum(iteration, before=before)
        self._roster = NOBODY
        self._sum = Sum()
        self._kept: dict[Peer, Contribution] = {}
        self._spare = memoryview(b"")

    @property
    def iteration(self) -> int:
        """The open one: so many are closed."""
        return self._quorum.iteration

    @property
    def seen(self) -> dict[Peer, int]:
        """The last iteration that each peer is known to have contributed to."""
        before = dict.fromkeys(self._quorum.before, self.iteration - 1)
        return before | dict.fromkeys(self._quorum.contributed, self.iteration)

    def appoint(self, roster: Roster) -> bool:
        """Let ``roster`` count from now on; True if that closed the open iteration."""
        self._roster = roster
        if self.iteration < roster.skip_to:
            self._quorum = Quorum(roster.skip_to)
        if self._quorum.appoint(roster):
            self._close()
            return True
        return False

    def judge(self, contribution: Contribution) -> Verdict:
        """What is to happen to it now."""
        return self._quorum.judge(self._roster, contribution.term, contribution.peer, contribution.iteration)

    def take(self, contribution: Contribution) -> memoryview | None:
        """Count what was judged to; memory that is free now, if any."""
        if self._roster.names(self.iteration):
            self._kept[contribution.peer] = contribution
            free = None
        else:
            free = self._sum.add(contribution) or self._reuse()
        if self._quorum.count(contribution.peer, self._roster):
            self._close()
        return free

    def open(self) -> Open:
        """What it has, to go on elsewhere."""
        quorum = self._quorum
        return Open(
            iteration=quorum.iteration,
            contributed=set(quorum.contributed),
            expected=set(quorum.expected),
            before=quorum.before,
            growing=self._sum,
            kept=list(self._kept.values()),
        )

    def resume(self, opened: Open) -> None:
        """Go on with what another lockstep had; the next ``appoint`` says who owes what."""
        self._quorum = Quorum(
            opened.iteration, contributed=opened.contributed, expected=opened.expected, before=opened.before
        )
        self._sum = opened.growing
        self._kept = {contribution.peer: contribution for contribution in opened.kept}

    def give_up(self) -> Sum:
        """What the open iteration has so far: it will not be closed, since there are no iterations any more."""
        self._gather(set(self._kept))
        return self._sum

    def _reuse(self) -> memoryview | None:
        free, self._spare = self._spare, memoryview(b"")
        return free or None

    def _close(self) -> None:
        """Apply the sum and open the next iteration."""
        iteration = self.iteration
        self._gather({peer for peer in self._kept if self._roster.named(iteration, peer.rank)})
        self._values.apply(self._sum)
        self._spare = self._sum.clear()
        for member in self._quorum.close(self._roster):
            self._on_missing(iteration, member.rank)

    def _gather(self, named: set[Peer]) -> None:
        for peer, contribution in sorted(self._kept.items(), key=lambda item: item[0].rank):
            if peer in named:
                self._sum.add(contribution)
            else:
                self._on_late(contribution.iteration, peer.rank)
        self._kept.clear()
