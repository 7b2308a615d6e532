"""Asynchronous contributions to a block: each is applied separately, on arrival or once its sender is released.

With delayed application (PSP Alg. 1, literal), contributions that the same orders release are applied as one sum. If
several contributions make one step, they are summed until all have arrived; the rest makes a fraction of a step when no
more will arrive.
"""

from collections.abc import Mapping

from workers.server.block_transfer import Open
from workers.server.contribution import Contribution, Sum
from workers.server.quorum import Roster, Verdict
from workers.server.values import Values
from workers.transport.handshake import Peer


class Arrivals:
    """The latest update of each worker, and delayed updates.

    Args:
        seen: the last iteration to which each peer has contributed.
        iteration: the latest iteration so far.
    """

    def __init__(self, values: Values, roster: Roster, *, seen: Mapping[Peer, int], iteration: int) -> None:
        self._values, self._roster = values, roster
        self._seen = dict(seen)
        self._held: list[Contribution] = []
        self._furthest = iteration
        self._growing = Sum()

    @property
    def iteration(self) -> int:
        """One past the latest iteration to which any peer has contributed."""
        return self._furthest

    def appoint(self, roster: Roster) -> None:
        """Use ``roster`` from now on, and apply the contributions that it releases."""
        self._roster = roster
        self._seen = {peer: iteration for peer, iteration in self._seen.items() if peer in roster.members}
        self._apply([held for held in self._held if self._passes(held)])
        self._held = [held for held in self._held if not self._passes(held)]
        if self._growing.count >= roster.gather:
            self._step()

    def judge(self, contribution: Contribution) -> Verdict:
        """How to treat the peer's contribution."""
        if contribution.iteration <= self._seen.get(contribution.peer, -1):
            return Verdict.REPEATED
        if contribution.term > self._roster.term:
            return Verdict.EARLY
        counts = self._roster.counts(contribution.peer, contribution.iteration)
        return Verdict.COUNT if contribution.term == self._roster.term and counts else Verdict.STALE

    def take(self, contribution: Contribution) -> memoryview | None:
        """Accept a contribution after ``judge``; return its memory if it is free now."""
        self._seen[contribution.peer] = contribution.iteration
        self._furthest = max(self._furthest, contribution.iteration + 1)
        if self._passes(contribution):
            return self._apply([contribution])
        self._held.append(contribution)
        return None

    def open(self) -> Open:
        """The state, to continue on another server."""
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
        """Release everything: workers are no longer released individually."""
        self._apply(self._held)
        self._held = []
        self.flush()

    def flush(self) -> None:
        """Apply what was summed, as a step or a fraction of one."""
        if self._growing.count:
            self._step()

    def _passes(self, contribution: Contribution) -> bool:
        """The contributions to apply: on arrival all; else those released, and those of members that have left and will
        not be released.
        """
        if self._roster.apply != "release" or contribution.peer not in self._roster.members:
            return True
        return contribution.iteration <= self._roster.passed.get(contribution.peer.rank, -1)

    def _apply(self, contributions: list[Contribution]) -> memoryview | None:
        """Apply contributions as one step with the sum of their scales, once there are enough; return free memory, if
        any.
        """
        free = None
        for contribution in contributions:
            free = self._growing.add(contribution)
        if self._growing.count >= self._roster.gather:
            return self._step() or free
        return free

    def _step(self) -> memoryview | None:
        """A step with the summed scales; if n contributions make one step, one step."""
        growing, gather = self._growing, self._roster.gather
        parts = growing.count if gather == 1 else min(1.0, growing.count / gather)
        self._values.apply(growing, scale=self._roster.scale * parts)
        return growing.clear() or None
