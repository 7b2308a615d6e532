"""One block with its lock: how updates count (``lockstep``, ``arrivals``), and its values (``values``).

Iterations before ``Roster.apply_from`` are completed in lockstep, even if later contributions are applied as they
arrive.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import torch

from controlplane.protocol.orders import ELEMENT_BYTES
from workers.checkpoints.files import STATE, VALUES
from workers.server.arrivals import Arrivals
from workers.server.block_transfer import BlockState
from workers.server.contribution import Contribution, weighed
from workers.server.lockstep import Lockstep, Note
from workers.server.norms import Norms, Part
from workers.server.quorum import NO_ROSTER, Roster, Verdict
from workers.server.values import Array, MakeRule, Snapshot, Values
from workers.transport.errors import GivenUp, Stopped
from workers.transport.handshake import Peer


class Gone(Exception):
    """The block is on another server now; ``held_s``: how long the request waited for that."""

    def __init__(self, held_s: float) -> None:
        self.held_s = held_s
        super().__init__("the block has moved to another server")


class Keep(Protocol):
    """Saves a block at some of its versions."""

    def wants(self, version: int) -> bool:
        """Whether this version should be kept."""

    def take(self, version: int, steps: int, tensors: dict[str, torch.Tensor]) -> None:
        """Save a version; called under the block's lock, with copies."""


def never() -> bool:
    """For callers that wait without a limit."""
    return False


NO_TERM = (-1, -1)
"""For callers that accept a response under any orders."""


class Block:
    """A slice of the parameters.

    Args:
        values: before the iteration ``iteration``; owned by the block from now on.
        make_rule: creates the update rule of the values.
        start: offset of the block in the flat vector.
        on_missing: called with (iteration, rank) of members that left before they had contributed.
        on_late: called with (iteration, rank) of dropped contributions: others completed their iteration.
        before: whose contributions to the previous iteration are known to be in the values.
        norms: where servers agree on the norm of the mean gradient over all blocks; None: not needed.
    """

    def __init__(
        self,
        values: Array,
        make_rule: MakeRule,
        on_missing: Note,
        on_late: Note,
        *,
        start: int = 0,
        iteration: int = 0,
        before: frozenset[Peer] = frozenset(),
        norms: Norms | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._condition = threading.Condition()
        self._keep: Keep | None = None
        self._norms = norms
        self._values = Values(values, make_rule, start=start)
        self._on_missing, self._on_late = on_missing, on_late
        self._now = now
        self._roster = NO_ROSTER
        self._counting: Lockstep | Arrivals = self._lockstep(iteration, before)
        self._freeze_at: int | None = None
        self._frozen = self._gone = self._stopped = False

    @property
    def version(self) -> int:
        """Number of completed iterations; in asynchronous jobs, one past the latest with a contribution."""
        return self._counting.iteration

    @property
    def steps(self) -> int:
        """Number of changes of the values."""
        return self._values.steps

    @property
    def block_bytes(self) -> int:
        """Size of the values in bytes."""
        return self._values.block_bytes

    def appoint(self, roster: Roster) -> None:
        """Use ``roster`` from now on: a departure may complete the open iteration."""
        with self._condition:
            self._roster = roster
            if not self._frozen:
                self._follow()
            self._condition.notify_all()

    def await_term(self, contribution: Contribution, given_up: Callable[[], bool] = never) -> float:
        """Wait until the contribution's generation and iteration are current; return how long that took.

        Raises:
            Gone: if the block moves to another server meanwhile.
            GivenUp: if ``given_up`` holds for the caller's connection, after ``poke``.
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            return self._wait(
                lambda: not self._frozen and self._counting.judge(contribution) is not Verdict.EARLY, given_up
            )

    def contribute(
        self, contribution: Contribution, given_up: Callable[[], bool] = never
    ) -> tuple[Verdict, memoryview | None]:
        """Count ``contribution``, once; the last expected one completes the iteration.

        The returned memory, if any, replaces that of the contribution: a sum is kept in place, since copying it would
        cost as much as adding another.

        Raises:
            Gone, GivenUp, Stopped: as ``await_term``, if the block was frozen since.
        """
        with self._condition:
            self._wait(lambda: not self._frozen and not self._is_complete_without(contribution), given_up)
            verdict = self._counting.judge(contribution)
            free: memoryview | None = contribution.total
            if verdict is Verdict.COUNT:
                before, free = self.version, self._counting.take(weighed(contribution, self._roster.aggregation))
                self._let_arrive()
                if self.version != before:
                    self._settle_freeze()
                    self._settle_keep()
                    self._condition.notify_all()
            elif verdict is Verdict.LATE:
                self._on_late(contribution.iteration, contribution.peer.rank)
            return verdict, free

    def borrow(
        self,
        version: int,
        term: tuple[int, int] = NO_TERM,
        placement: int | None = None,
        given_up: Callable[[], bool] = never,
    ) -> tuple[Snapshot, int, float]:
        """Borrow the values for iteration ``version`` under the orders ``term``; return them with ``give_back``.

        In lockstep this waits until that many iterations are complete, otherwise the current values are returned. The
        result includes the version of the values, which is later than requested if the requester is no longer a member,
        and how long the request waited.

        If the version waits for a norm, requesters under an older ``placement`` are released: a server may have been
        lost, and the norm depends on what they should push to the new one.

        Raises:
            Gone: if the block moves to another server before it has that version, or the requester is released.
            GivenUp, Stopped: as ``await_term``.
        """

        def is_ready() -> bool:
            return term <= self._roster.term and self._is_open(version)

        def is_outdated() -> bool:
            return placement is not None and placement < self._roster.placement and self._awaits_norm

        with self._condition:
            held_s = self._wait(lambda: is_ready() or is_outdated(), given_up)
            if not is_ready():
                raise Gone(held_s)
            given = version if isinstance(self._counting, Arrivals) else self.version
            return self._values.borrow(), given, held_s

    def give_back(self, snapshot: Snapshot) -> None:
        """The reader has finished with a borrowed snapshot."""
        with self._condition:
            self._values.give_back(snapshot)

    def freeze(self, at: int) -> None:
        """Accept no contribution from version ``at`` on, until ``thaw`` or ``leave``; the values can still be read."""
        with self._condition:
            self._freeze_at = at
            self._settle_freeze()

    def thaw(self) -> None:
        """Continue: the block stays on this server."""
        with self._condition:
            if not self._gone:
                self._freeze_at, self._frozen = None, False
                self._follow()
                self._condition.notify_all()
                if self._norms is not None:
                    self._norms.poke()

    def leave(self) -> None:
        """The block was moved to another server: pending requests are answered with ``Gone``."""
        with self._condition:
            self._frozen = self._gone = True
            self._condition.notify_all()

    def await_frozen(self) -> BlockState | None:
        """The complete state as soon as the block is frozen, and as long as it stays so; None if it will not be.

        Raises:
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._frozen or self._stopped or self._freeze_at is None)
            if self._stopped:
                raise Stopped("the server ends")
            if not self._frozen or self._gone:
                return None
            values = self._values
            return BlockState(
                start=values.start,
                values=values.tensor,
                steps=values.steps,
                state=values.state,
                open=self._counting.open(),
            )

    def settle(self) -> None:
        """Apply the step of the open iteration if it is complete and the norm over all blocks is known."""
        with self._condition:
            counting = self._counting
            if self._norms is None or self._frozen or not isinstance(counting, Lockstep) or not counting.awaits_norm:
                return
            if (norm := self._norms.norm(counting.iteration)) is None:
                return
            counting.settle(norm)
            self._let_arrive()
            self._settle_freeze()
            self._settle_keep()
            self._condition.notify_all()

    def keep_by(self, keep: Keep | None) -> None:
        """From now on pass a copy to ``keep`` at each version of lockstep that it wants."""
        with self._condition:
            self._keep = keep

    def flush(self) -> None:
        """Apply the sum of asynchronous updates: a block restored from a copy does not contain it."""
        with self._condition:
            if isinstance(self._counting, Arrivals):
                self._counting.flush()

    def copy(self) -> dict[str, torch.Tensor]:
        """The current values and the rule's state."""
        with self._condition:
            return self._copy()

    def restore(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Restore the rule's state, before the block has a roster here."""
        with self._condition:
            self._values.resume(state, steps)

    def _copy(self) -> dict[str, torch.Tensor]:
        state = {f"{STATE}{name}": tensor.clone() for name, tensor in self._values.state.items()}
        return {VALUES: self._values.tensor.clone()} | state

    def _settle_keep(self) -> None:
        if self._keep is not None and isinstance(self._counting, Lockstep) and self._keep.wants(self.version):
            self._keep.take(self.version, self.steps, self._copy())

    def resume(self, state: BlockState) -> None:
        """Continue with the block's state from another server; call it before members are set here."""
        opened = state.open
        with self._condition:
            self._values.resume(state.state, state.steps)
            if opened.is_free:
                self._counting = Arrivals(self._values, self._roster, seen={}, iteration=opened.iteration)
            self._counting.resume(opened)

    def poke(self) -> None:
        """Release threads whose connection was given up, with ``GivenUp``."""
        with self._condition:
            self._condition.notify_all()

    def stop(self) -> None:
        """Release all waiting threads with ``Stopped``."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def _follow(self) -> None:
        roster = self._roster
        if isinstance(self._counting, Arrivals) and roster.apply == "quorum":
            self._counting.finish()
            self._counting = self._lockstep(roster.apply_from)
        before = self.version
        self._counting.appoint(roster)
        self._let_arrive()
        self._settle_freeze()
        if self.version != before:
            self._settle_keep()

    def _settle_freeze(self) -> None:
        if self._freeze_at is not None and not self._frozen and self.version >= self._freeze_at:
            self._frozen = True
            self._condition.notify_all()

    @property
    def _awaits_norm(self) -> bool:
        return isinstance(self._counting, Lockstep) and self._counting.awaits_norm

    def _is_complete_without(self, contribution: Contribution) -> bool:
        """Whether it came after the open iteration was complete, and before its step was applied."""
        return self._awaits_norm and self._counting.judge(contribution) is Verdict.EARLY

    def _is_open(self, version: int) -> bool:
        return isinstance(self._counting, Arrivals) or self.version >= version

    def _lockstep(self, iteration: int, before: frozenset[Peer] = frozenset()) -> Lockstep:
        say = None if self._norms is None else self._say_norm
        return Lockstep(
            self._values, iteration, on_missing=self._on_missing, on_late=self._on_late, before=before, say=say
        )

    def _say_norm(self, iteration: int, squared: float) -> None:
        assert self._norms is not None
        size = self.block_bytes // ELEMENT_BYTES
        self._norms.say(Part(iteration=iteration, start=self._values.start, size=size, squared=squared))

    def _let_arrive(self) -> None:
        """End lockstep if requested: the updates of its open iteration are applied individually."""
        roster, counting = self._roster, self._counting
        if roster.apply == "quorum" or isinstance(counting, Arrivals) or counting.iteration < roster.apply_from:
            return
        begun = counting.give_up()
        self._values.apply(begun, scale=roster.scale * begun.count)
        self._counting = Arrivals(self._values, roster, seen=counting.seen, iteration=counting.iteration)

    def _wait(self, ready: Callable[[], bool], given_up: Callable[[], bool]) -> float:
        """Wait until ``ready``; return how long that took, 0.0 if it did not wait."""
        if ready():
            return 0.0
        began = self._now()
        self._condition.wait_for(lambda: ready() or self._stopped or self._gone or given_up())
        if self._stopped:
            raise Stopped("the server ends")
        if given_up() and not ready():
            raise GivenUp("the connection ended while its request waited")
        if self._gone and not ready():
            raise Gone(self._now() - began)
        return self._now() - began
