"""Synchronous iterations of a block: counts contributions, and applies their sum when the last expected one arrives.

If the control plane names the workers whose updates make an iteration (backup workers), contributions are kept
separately until it does: exactly those named are summed, in the order of their ranks, and the others are dropped.
"""

from collections.abc import Callable

from workers.server.block_transfer import Open
from workers.server.contribution import Contribution, Sum
from workers.server.norms import KEPT
from workers.server.quorum import NO_ROSTER, Quorum, Roster, Verdict
from workers.server.values import Values
from workers.transport.handshake import Peer

Note = Callable[[int, int], None]
"""Called with (iteration, rank)."""

Say = Callable[[int, float], None]
"""Called with (iteration, squared norm) of the mean gradient of a block."""


class Lockstep:
    """The open iteration of one block.

    Args:
        iteration: the open one.
        on_missing: called for members that left before they had contributed.
        on_late: called for contributions that do not count, since others completed their iteration.
        before: whose contributions to the previous iteration are in the values.
        say: called with the norm of each sum, which is applied when the norm over all blocks is known; None: it is
            applied immediately.
    """

    def __init__(
        self,
        values: Values,
        iteration: int,
        *,
        on_missing: Note,
        on_late: Note,
        before: frozenset[Peer] = frozenset(),
        say: Say | None = None,
    ) -> None:
        self._say, self._awaits_norm = say, False
        self._squared: dict[int, float] = {}
        self._values, self._on_missing, self._on_late = values, on_missing, on_late
        self._quorum = Quorum(iteration, before=before)
        self._roster = NO_ROSTER
        self._sum = Sum()
        self._kept: dict[Peer, Contribution] = {}
        self._spare = memoryview(b"")

    @property
    def iteration(self) -> int:
        """The open iteration, which is the number of completed ones."""
        return self._quorum.iteration

    @property
    def seen(self) -> dict[Peer, int]:
        """The last iteration to which each peer is known to have contributed."""
        before = dict.fromkeys(self._quorum.before, self.iteration - 1)
        return before | dict.fromkeys(self._quorum.contributed, self.iteration)

    def appoint(self, roster: Roster) -> bool:
        """Use ``roster`` from now on; return whether that completed the open iteration."""
        self._roster = roster
        if self.iteration < roster.skip_to:
            self._quorum, self._awaits_norm = Quorum(roster.skip_to), False
        before = self.iteration
        if not self._awaits_norm and self._quorum.appoint(roster):
            self._complete()
        return self.iteration > before

    def judge(self, contribution: Contribution) -> Verdict:
        """How to treat the peer's contribution."""
        verdict = self._quorum.judge(self._roster, contribution.term, contribution.peer, contribution.iteration)
        # A complete iteration accepts no more contributions; late ones get the same response as after the step.
        return Verdict.EARLY if self._awaits_norm and verdict is Verdict.COUNT else verdict

    def take(self, contribution: Contribution) -> memoryview | None:
        """Accept a contribution after ``judge``; return memory that is free now, if any."""
        if self._roster.names(self.iteration):
            self._kept[contribution.peer] = contribution
            free = None
        else:
            free = self._sum.add(contribution) or self._reuse()
        if self._quorum.count(contribution.peer, self._roster):
            self._complete()
        return free

    @property
    def awaits_norm(self) -> bool:
        """Whether the open iteration is complete, and its step waits for the norm over all blocks."""
        return self._awaits_norm

    def settle(self, norm: float) -> None:
        """Apply the step of the complete iteration; the mean gradient of all blocks has this norm."""
        self._awaits_norm = False
        self._close(norm)

    def open(self) -> Open:
        """The state, to continue on another server."""
        quorum = self._quorum
        return Open(
            iteration=quorum.iteration,
            contributed=set(quorum.contributed),
            expected=set(quorum.expected),
            before=quorum.before,
            growing=self._sum,
            kept=list(self._kept.values()),
            squared=dict(self._squared),
        )

    def resume(self, opened: Open) -> None:
        """Continue with the state of another lockstep; the next ``appoint`` sets the expected contributions."""
        self._quorum = Quorum(
            opened.iteration, contributed=opened.contributed, expected=opened.expected, before=opened.before
        )
        self._sum = opened.growing
        self._kept = {contribution.peer: contribution for contribution in opened.kept}
        for iteration, squared in sorted(opened.squared.items()):
            self._publish_norm(iteration, squared)

    def give_up(self) -> Sum:
        """The updates of the open iteration, which will not be completed, since no synchronous iterations follow."""
        self._gather(set(self._kept))
        return self._sum

    def _reuse(self) -> memoryview | None:
        free, self._spare = self._spare, memoryview(b"")
        return free or None

    def _complete(self) -> None:
        """All contributions have arrived: apply the step, or wait for the norm."""
        self._gather({peer for peer in self._kept if self._roster.named(self.iteration, peer.rank)})
        if self._say is None:
            self._close()
            return
        self._awaits_norm = True
        self._publish_norm(self.iteration, self._values.squared_norm(self._sum))

    def _publish_norm(self, iteration: int, squared: float) -> None:
        self._squared[iteration] = squared
        self._squared = {of: each for of, each in self._squared.items() if of > iteration - KEPT}
        if self._say is not None:
            self._say(iteration, squared)

    def _close(self, norm: float | None = None) -> None:
        """Apply the sum and open the next iteration."""
        iteration = self.iteration
        self._values.apply(self._sum, norm=norm)
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
