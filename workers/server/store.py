"""The blocks of one server, as its orders name them; finds a block for a request, waiting for orders on their way."""

import threading
from collections.abc import Callable

import numpy as np
import torch

from controlplane.protocol.orders import ServerOrders
from workers.server.block import Block
from workers.server.quorum import NOBODY, Roster, roster_of
from workers.transport.errors import Refused, Stopped
from workers.workloads.shape import Rule, Vector


class Missing:
    """Collects who was missing from which iteration; its lock is held while no other is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._new: set[tuple[int, int]] = set()
        self._told: set[tuple[int, int]] = set()

    def note(self, iteration: int, rank: int) -> None:
        """``rank`` left before it had contributed to ``iteration`` on some block."""
        with self._lock:
            self._new.add((iteration, rank))

    def take(self) -> list[tuple[int, int]]:
        """What was noted and not taken before."""
        with self._lock:
            fresh = sorted(self._new - self._told)
            self._told |= self._new
            self._new.clear()
            return fresh


class Store:
    """What this server holds.

    Args:
        init: gives version 0 of all parameters; called when the first blocks come.
        make_rule: the update rule for the values of one block.
    """

    def __init__(self, init: Callable[[], Vector], make_rule: Callable[[torch.Tensor], Rule]) -> None:
        self._init, self._make_rule = init, make_rule
        self._condition = threading.Condition()
        self._orders: ServerOrders | None = None
        self._roster: Roster = NOBODY
        self._blocks: dict[int, Block] = {}
        self._missing = Missing()
        self._stopped = False

    def take(self, orders: ServerOrders) -> None:
        """Follow ``orders``, unless newer ones were taken before.

        Raises:
            ValueError: if they give this server a block of a job that is under way: its values would be lost.
        """
        with self._condition:
            if self._orders is not None and orders.rank_in_time <= self._orders.rank_in_time:
                return
            self._hold(orders)
            self._orders, self._roster = orders, roster_of(orders)
            for block in self._blocks.values():
                block.appoint(self._roster)
            self._condition.notify_all()

    def find(self, index: int, placement: int) -> Block | None:
        """Block ``index`` under placement ``placement``; waits until this server has that placement.

        None: it is elsewhere, under a placement that is newer than the asker's.

        Raises:
            Refused: if the block is not this server's under that very placement.
            Stopped: if the server ends meanwhile.
        """
        with self._condition:
            while self._placement < placement and not self._stopped:
                self._condition.wait()
            if self._stopped:
                raise Stopped("the server ends")
            if index not in self._blocks and placement >= self._placement:
                held = f"it holds {sorted(self._blocks)}"
                raise Refused(f"block {index} is not on this server under placement {placement}; {held}")
            return self._blocks.get(index)

    @property
    def version(self) -> int:
        """The lowest version of the blocks held: iterations that are closed on all of them; 0 without any."""
        with self._condition:
            return min((block.version for block in self._blocks.values()), default=0)

    def take_missing(self) -> list[tuple[int, int]]:
        """(iteration, rank) of members that left before they had contributed everywhere; each is told once."""
        return self._missing.take()

    def stop(self) -> None:
        """Let everybody who waits for anything here go."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
            for block in self._blocks.values():
                block.stop()

    @property
    def _placement(self) -> int:
        return -1 if self._orders is None else self._orders.placement_version

    def _hold(self, orders: ServerOrders) -> None:
        """Hold exactly the blocks of ``orders``; new ones begin at version 0."""
        named = {block.index: block for block in orders.blocks}
        new = named.keys() - self._blocks.keys()
        if new and any(block.version for block in self._blocks.values()):
            versions = sorted({block.version for block in self._blocks.values()})
            raise ValueError(
                f"orders {orders.rank_in_time} give this server blocks {sorted(new)}, which would begin at version 0, "
                f"while those it holds are at {versions}: values cannot be moved between servers in this version"
            )
        initial = self._init() if new else np.empty(0, dtype=np.float32)
        fresh = {index: self._begin(initial[named[index].start : named[index].stop]) for index in sorted(new)}
        kept = {index: block for index, block in self._blocks.items() if index in named}
        for index in self._blocks.keys() - kept.keys():
            self._blocks[index].stop()
        self._blocks = kept | fresh

    def _begin(self, values: Vector) -> Block:
        return Block(values.copy(), self._make_rule, self._missing.note)
