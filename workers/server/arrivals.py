"""Asynchronous contributions to a block: each is applied separately, on arrival or once its sender is released.

Held back (PSP Alg. 1 by the letter), those that newer orders release together are applied as one sum. If several should
make one step, they are summed until all have arrived; the rest makes a part of a step when no more will come.
"""

from collections.abc import Mapping

from workers.server.block_transfer import Open
from workers.server.contribution import Contribution, Sum
from workers.server.quorum import Roster, Verdict
from workers.server.values import Values
from workers.transport.handshake import Peer


class Arrivals:
    """The latest update of each worker, and held updates.

    Args:
        seen: the last iteration that each peer has contributed to already.
        iteration: the furthest iteration so far.
    """

    def __init__(self, values: Values, roster: Roster, *, seen: Mapping[Peer, int], iteration: int) -> None:
        self._values, self._roster = values, roster
        self._seen = dict(seen)
        self._held: list[Contribution] = []
        self._furthest = iteration
        self._growing = Sum()

    @property
    def iteration(self) -> int:
        """One past the furthest iteration that anybody has contributed to."""
        return self._furthest

    def appoint(self, roster: Roster) -> None:
        """Let ``roster`` count from now on, and apply what it lets pass."""
        self._roster = roster
        self._seen = {peer: iteration for peer, iteration in self._seen.items() if peer in roster.members}
        self._apply([held for held in self._held if self._passes(held)])
        self._held = [held for held in self._held if not self._passes(held)]
        if self._growing.count >= roster.gather:
            self._step()

    def judge(self, contribution: Contribution) -> Verdict:
        """Its next treatment."""
        if contribution.iteration <= self._seen.get(contribution.peer, -1):
            return Verdict.REPEATED
        if contribution.term > self._roster.term:
            return Verdict.EARLY
        counts = self._roster.counts(contribution.peer, contribution.iteration)
        return Verdict.COUNT if contribution.term == self._roster.term and counts else Verdict.STALE

    def take(self, contribution: Contribution) -> memoryview | None:
        """Count what was judged to; its memory if that is free now."""
        self._seen[contribution.peer] = contribution.iteration
        self._furthest = max(self._furthest, contribution.iteration + 1)
        if self._passes(contribution):
            return self._apply([contribution])
        self._held.append(contribution)
        return None

    def open(self) -> Open:
        """Its state, to continue on another server."""
        return Open(
            iteration=self._furthest,
            is_free=True,
            seen=dict(self._seen),
            growing=self._growing,
            kept=list(self._held),
        )

    def resume(self, opened: Open) -> None:
        """Continue with the state of another instance."""
        self._furthest, self._seen, self._held = opened.iteration, opened.seen, opened.kept
        self._growing = opened.growing

    def finish(self) -> None:
        """Release everything: workers are no longer released one by one."""
        self._apply(self._held)
        self._held = []
        self.flush()

    def flush(self) -> None:
        """Make what was added up a step, or the part of one that it is."""
        if self._growing.count:
            self._step()

    def _passes(self, contribution: Contribution) -> bool:
        """All of them on arrival; else those released, and those that have left and will not be."""
        if self._roster.apply != "release" or contribution.peer not in self._roster.members:
            return True
        return contribution.iteration <= self._roster.passed.get(contribution.peer.rank, -1)

    def _apply(self, contributions: list[Contribution]) -> memoryview | None:
        """One step, as long as all of theirs together, once there are enough; memory that is free then, if any."""
        free = None
        for contribution in contributions:
            free = self._growing.add(contribution)
        if self._growing.count >= self._roster.gather:
            return self._step() or free
        return free

    def _step(self) -> memoryview | None:
        """As long as those of all that were added up; where so many make one, that one."""
        growing, gather = self._growing, self._roster.gather
        parts = growing.count if gather == 1 else min(1.0, growing.count / gather)
        self._values.apply(growing, scale=self._roster.scale * parts)
        return growing.clear() or None
