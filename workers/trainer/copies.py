"""Tracks the complete copies of blocks in a worker's memory, from which a lost server's blocks can be restored.

A pull overwrites the older copy in place. If the server fails meanwhile, neither version is complete; so each block has
one worker that guards it, by saving the older copy while the newer one is being received.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workers.transport.errors import ConnectionClosed
from workers.transport.frames import Header

SETTLE_S = 2.0
"""How long an aborted transfer may take to notice that."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of one block: the requested version, and the number of changes of its values."""

    version: int
    steps: int


class Copies:
    """Records every transfer. ``guards``: whether this worker saves the older copy of a block."""

    def __init__(self, guards: Callable[[int], bool] = lambda block: True) -> None:
        self._guards = guards
        self._settled = threading.Condition()
        self._known: dict[int, Copy] = {}
        self._receiving: set[int] = set()
        self._lost: set[int] = set()
        self._spares = threading.local()

    @contextmanager
    def receiving(self, reply: Header, memory: memoryview) -> Iterator[None]:
        """The context in which the values of ``reply`` are received into ``memory``.

        Raises:
            ConnectionClosed: if their server was lost meanwhile; if the block is guarded, the older copy was restored.
        """
        with self._settled:
            before = self._known.pop(reply.block, None)
            self._receiving.add(reply.block)
        spare = self._save(memory) if before is not None and self._guards(reply.block) else None
        after = None
        try:
            yield
            after = Copy(reply.iteration, reply.samples)
        finally:
            with self._settled:
                is_lost = reply.block in self._lost
                if (after is None or is_lost) and spare is not None:
                    memory[:] = spare
                    after = before
                elif is_lost:
                    after = None
                if after is not None:
                    self._known[reply.block] = after
                self._receiving.discard(reply.block)
                self._settled.notify_all()
        if is_lost:
            raise ConnectionClosed(f"the server of block {reply.block} was lost")

    def distrust(self, blocks: Iterable[int]) -> None:
        """The servers of these blocks were lost: ignore data that still arrives from them."""
        with self._settled:
            self._lost |= set(blocks)

    def trust(self, blocks: Iterable[int]) -> None:
        """Other servers have these blocks now."""
        with self._settled:
            self._lost -= set(blocks)

    def held(self, blocks: Iterable[int]) -> dict[int, Copy]:
        """Those of ``blocks`` with a complete copy, once no transfer of them is in progress."""
        wanted = set(blocks)
        with self._settled:
            self._settled.wait_for(lambda: not wanted & self._receiving, SETTLE_S)
            return {block: self._known[block] for block in sorted(wanted) if block in self._known}

    def read(self, block: int, memory: memoryview) -> tuple[memoryview, Copy] | None:
        """The current copy of ``block`` in ``memory``; None if it is incomplete."""
        with self._settled:
            copy = self._known.get(block)
            return None if copy is None else (memoryview(bytes(memory)), copy)

    def _save(self, memory: memoryview) -> memoryview:
        """In this thread's memory, since each server's blocks are received on a separate thread."""
        spare: memoryview | None = getattr(self._spares, "memory", None)
        if spare is None or len(spare) < len(memory):
            spare = self._spares.memory = memoryview(bytearray(len(memory)))
        spare[: len(memory)] = memory
        return spare[: len(memory)]
