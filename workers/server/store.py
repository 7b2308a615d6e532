"""The blocks of one server according to its orders. Requests wait for orders that are still being delivered."""

import math
import threading
from collections.abc import Callable, Mapping

import torch

from controlplane.protocol.checkpoints import Restore
from controlplane.protocol.orders import ELEMENT_BYTES, ServerOrders
from controlplane.protocol.orders import Block as Cut
from workers.server.block import Block, never
from workers.server.block_transfer import BlockState
from workers.server.checkpointing import Checkpoints
from workers.server.handover import Handover
from workers.server.norms import Norms
from workers.server.quorum import NO_ROSTER, Roster, roster_of
from workers.server.values import MakeRule
from workers.transport.errors import BadHeader, GivenUp, Refused, Stopped
from workers.transport.handshake import Peer
from workers.workloads.rules import STEPS
from workers.workloads.shape import Vector


class Noted:
    """A set of (iteration, rank); no other lock is taken while its lock is held."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: set[tuple[int, int]] = set()
        self._reported: set[tuple[int, int]] = set()

    def note(self, iteration: int, rank: int) -> None:
        """Add ``rank`` in ``iteration``."""
        with self._lock:
            self._new.add((iteration, rank))

    def take(self) -> list[tuple[int, int]]:
        """Entries that were not returned before."""
        with self._lock:
            fresh = sorted(self._new - self._reported)
            self._reported |= self._new
            self._new.clear()
            return fresh


HandOver = Callable[[ServerOrders, Mapping[int, Block]], Handover]


class Store:
    """The blocks of this server.

    Args:
        init: returns version 0 of all parameters; called when the first blocks are created.
        make_rule: creates the update rule for the values of one block at an offset in the flat vector.
        hand_over: receives blocks to send to other servers; None: this server sends none.
        checkpoints: this server's part in them, or None.
        on_filled: called with the blocks restored from workers' copies, once no more are expected.
        norms: creates the agreement on the norm of a gradient; None: not needed.
        elements: of the flat vector, an upper bound for blocks from other servers; None: unknown.
    """

    def __init__(
        self,
        init: Callable[[], Vector],
        make_rule: MakeRule,
        *,
        hand_over: HandOver | None = None,
        checkpoints: Checkpoints | None = None,
        on_filled: Callable[[list[int]], None] = lambda blocks: None,
        norms: Callable[[Callable[[], None]], Norms] | None = None,
        elements: int | None = None,
    ) -> None:
        self._most_bytes = math.inf if elements is None else ELEMENT_BYTES * elements
        self._checkpoints = checkpoints
        self._init, self._make_rule, self._hand_over = init, make_rule, hand_over
        self._handover: Handover | None = None
        self._staged: dict[tuple[int, int], Block] = {}
        self._awaited: dict[int, Cut] = {}
        self._filled: list[int] = []
        self._on_filled = on_filled
        self._condition = threading.Condition()
        self._orders: ServerOrders | None = None
        self._roster: Roster = NO_ROSTER
        self._blocks: dict[int, Block] = {}
        self._missing, self._late = Noted(), Noted()
        self._stopped = False
        self._norms = norms(self._settle) if norms is not None else None

    def take(self, orders: ServerOrders) -> None:
        """Follow ``orders``, unless newer ones were accepted before.

        Raises:
            ValueError: if they assign to this server a block of a running job: its values would be lost.
            CheckpointError: if the checkpoint to start from cannot be used; nothing has changed.
        """
        with self._condition:
            if self._orders is not None and orders.rank_in_time <= self._orders.rank_in_time:
                return
            self._hold(orders)
            self._orders, self._roster = orders, roster_of(orders)
            for block in self._blocks.values():
                block.appoint(self._roster)
            self._follow_change(orders)
            if self._norms is not None:
                self._norms.follow(orders.receivers)
            if self._checkpoints is not None:
                self._checkpoints.follow(orders, self._blocks)
            self._condition.notify_all()

    def stage(self, index: int, placement: int, state: BlockState, given_up: Callable[[], bool] = never) -> None:
        """Keep a block from another server until orders of that placement name it.

        Waits until orders expect one: the other server may have received its orders earlier than this one.

        Raises:
            Refused: if the orders expect another placement by now, or the block is not part of this job.
            GivenUp: if ``given_up`` holds for the caller's connection, after ``poke``.
            Stopped: if the server ends meanwhile.
        """
        try:
            block = self._begin(state.values.numpy(), state.start)
            block.resume(state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:  # exceptions of torch and its optimizers
            raise Refused(f"block {index} cannot continue here: {type(error).__name__}: {error}") from None
        with self._condition:
            self._wait(lambda: self._newest_placement >= placement, given_up)
            if self._orders is None or self._orders.next_placement != placement:
                raise Refused(f"block {index} comes for placement {placement}, which is not expected here any more")
            others = sum(each.block_bytes for key, each in self._staged.items() if key != (placement, index))
            if others + block.block_bytes > self._most_bytes:
                raise Refused(f"block {index} comes after {others} bytes of others: more than all parameters have")
            self._staged[placement, index] = block

    def fill(
        self,
        index: int,
        placement: int,
        values: Vector,
        *,
        version: int,
        steps: int,
        given_up: Callable[[], bool] = never,
    ) -> None:
        """Restore an expected block from a worker's copy; a block that was restored already is not changed.

        Contributions to iterations that are part of this version are not expected again.

        Raises:
            Refused: if the block is not expected here under that placement, or has another size.
            GivenUp, Stopped: as ``stage``.
        """
        with self._condition:
            self._wait(lambda: self._placement >= placement, given_up)
            if index in self._blocks:
                return
            cut = self._awaited.get(index)
            if cut is None or len(values) != cut.stop - cut.start:
                raise Refused(f"a copy of block {index} with {len(values)} values is not awaited here")
            self._blocks[index] = self._refilled(cut, values, version, steps)
            del self._awaited[index]
            self._filled.append(index)
            if not self._awaited:
                self._on_filled(list(self._filled))
            self._condition.notify_all()

    def receive_norms(self, instance: str, payload: bytes) -> None:
        """Receive another server's parts of gradient norms.

        Raises:
            BadHeader: if nothing here depends on them, or they are malformed.
        """
        if self._norms is None:
            raise BadHeader("norms of gradients, which no step of this job depends on")
        self._norms.receive(instance, payload)

    def find(self, index: int, placement: int, given_up: Callable[[], bool] = never) -> Block | None:
        """Return block ``index`` under placement ``placement``; wait until this server has that placement.

        None: it is elsewhere, under a placement that is newer than the requester's.

        Raises:
            Refused: if this server does not have the block under that placement.
            GivenUp, Stopped: as ``stage``.
        """
        with self._condition:
            self._wait(lambda: self._placement >= placement and index not in self._awaited, given_up)
            if index not in self._blocks and placement >= self._placement:
                held = f"it holds {sorted(self._blocks)}"
                raise Refused(f"block {index} is not on this server under placement {placement}; {held}")
            return self._blocks.get(index)

    @property
    def version(self) -> int:
        """The lowest version of the blocks: the number of iterations that are complete on all of them; 0 without any.

        In asynchronous jobs, one past the latest iteration with a contribution.
        """
        with self._condition:
            return min((block.version for block in self._blocks.values()), default=0)

    @property
    def generation(self) -> int:
        """The generation of the current roster; 0 before the first."""
        with self._condition:
            return max(0, self._roster.generation)

    @property
    def highest(self) -> int:
        """The highest version of the blocks; 0 without any."""
        with self._condition:
            return max((block.version for block in self._blocks.values()), default=0)

    def take_missing(self) -> list[tuple[int, int]]:
        """(iteration, rank) of members that left before they had contributed to all blocks; each is returned once."""
        return self._missing.take()

    def take_late(self) -> list[tuple[int, int]]:
        """(iteration, rank) of updates that were dropped, since other ranks were named for it;
        each is returned once.
        """
        return self._late.take()

    def poke(self) -> None:
        """Release threads whose connection was given up."""
        with self._condition:
            self._condition.notify_all()
            blocks = list(self._blocks.values())
        for block in blocks:
            block.poke()

    def stop(self) -> None:
        """Release all waiting threads."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
            for block in self._blocks.values():
                block.stop()
        if self._norms is not None:
            self._norms.stop()

    def _wait(self, ready: Callable[[], bool], given_up: Callable[[], bool]) -> None:
        """Wait until ``ready``. Raises GivenUp, Stopped: otherwise."""
        self._condition.wait_for(lambda: self._stopped or ready() or given_up())
        if self._stopped:
            raise Stopped("the server ends")
        if not ready():
            raise GivenUp("the connection ended while its request waited")

    def _settle(self) -> None:
        with self._condition:
            blocks = list(self._blocks.values())
        for block in blocks:
            block.settle()

    @property
    def _placement(self) -> int:
        return -1 if self._orders is None else self._orders.placement_version

    @property
    def _newest_placement(self) -> int:
        """The newest version in the orders, in effect or not."""
        return max(self._placement, -1 if self._orders is None else self._orders.next_placement)

    def _hold(self, orders: ServerOrders) -> None:
        """Hold exactly the blocks in ``orders``; new ones were handed over, or start at version 0."""
        named = {block.index: block for block in orders.blocks}
        self._awaited = {index: named[index] for index in orders.awaits if index not in self._blocks}
        new = named.keys() - self._blocks.keys() - self._awaited.keys()
        for index in sorted(new):
            if (staged := self._staged.pop((orders.placement_version, index), None)) is not None:
                self._blocks[index] = staged
        self._staged = {key: block for key, block in self._staged.items() if key[0] == orders.next_placement}
        new -= self._blocks.keys()
        if new and any(block.version for block in self._blocks.values()):
            versions = sorted({block.version for block in self._blocks.values()})
            raise ValueError(
                f"orders {orders.rank_in_time} give this server blocks {sorted(new)}, which would begin at version 0, "
                f"while those it holds are at {versions}: no other server has handed them over"
            )
        fresh = self._begin_new([named[index] for index in sorted(new)], orders.restore)
        kept = {index: block for index, block in self._blocks.items() if index in named}
        for index in self._blocks.keys() - kept.keys():
            self._blocks[index].leave()
        self._blocks = kept | fresh
        if self._checkpoints is not None:
            for index, block in self._blocks.items():
                block.keep_by(self._checkpoints.keep(named[index]))

    def _refilled(self, cut: Cut, values: Vector, version: int, steps: int) -> Block:
        roster = self._roster
        is_lockstep = roster.apply == "quorum" or version < roster.apply_from
        before = frozenset(roster.members) if is_lockstep else frozenset()
        block = self._begin(values, cut.start, iteration=version, before=before)
        block.restore({STEPS: torch.tensor(steps if is_lockstep else steps * roster.scale)}, steps)
        block.appoint(roster)
        if self._checkpoints is not None:
            block.keep_by(self._checkpoints.keep(cut))
        return block

    def _begin_new(self, cuts: list[Cut], restore: Restore | None) -> dict[int, Block]:
        if not cuts:
            return {}
        if self._checkpoints is None:
            initial = self._init()
            return {cut.index: self._begin(initial[cut.start : cut.stop].copy(), cut.start) for cut in cuts}
        blocks = {}
        starts = {cut.index: cut.start for cut in cuts}
        for index, beginning in self._checkpoints.beginnings(cuts, restore).items():
            blocks[index] = block = self._begin(beginning.values, starts[index], iteration=beginning.iteration)
            if beginning.state is not None:
                block.restore(beginning.state, beginning.steps)
        return blocks

    def _follow_change(self, orders: ServerOrders) -> None:
        """Start the handovers in the orders, and cancel those that are no longer in them."""
        if self._handover is not None and self._handover.placement != orders.next_placement:
            self._handover.cancel()
            self._handover = None
        if self._handover is None and orders.sends and self._hand_over is not None:
            self._handover = self._hand_over(orders, {index: self._blocks[index] for index in orders.sends})
            self._handover.start()

    def _begin(self, values: Vector, start: int, *, iteration: int = 0, before: frozenset[Peer] = frozenset()) -> Block:
        note_missing, note_late = self._missing.note, self._late.note
        make_rule = self._make_rule
        return Block(
            values,
            make_rule,
            note_missing,
            note_late,
            start=start,
            iteration=iteration,
            before=before,
            norms=self._norms,
        )
