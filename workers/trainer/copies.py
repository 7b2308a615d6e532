"""The complete version of each block in a worker's memory, from which a lost server's blocks can be restored.

A pull overwrites the older copy where it lies. If the server dies in the middle, neither version is whole; so each
block has one worker that guards it, by saving the older copy for as long as the newer one is on its way.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from workers.transport.errors import ConnectionClosed
from workers.transport.frames import Header

SETTLE_S = 2.0
"""How long a receipt that was aborted may take to notice."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Of one block: the version that it was pulled for, and how often its values had changed."""

    version: int
    steps: int


class Copies:
    """Records every receipt. ``guards``: whether this worker keeps the older copy of a block."""

    def __init__(self, guards: Callable[[int], bool] = lambda block: True) -> None:
        self._guards = guards
        self._settled = threading.Condition()
        self._known: dict[int, Copy] = {}
        self._receiving: set[int] = set()
        self._lost: set[int] = set()
        self._spares = threading.local()

    @contextmanager
    def receiving(self, reply: Header, memory: memoryview) -> Iterator[None]:
        """The values of ``reply`` are being received into ``memory``.

        Raises:
            ConnectionClosed: if their server was lost meanwhile; the older copy is back where it is guarded.
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
        """The servers of these blocks were lost: ignore what still arrives from them."""
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
        """The copy of ``block`` in ``memory``, as it is now; None if it is not whole."""
        with self._settled:
            copy = self._known.get(block)
            return None if copy is None else (memoryview(bytes(memory)), copy)

    def _save(self, memory: memoryview) -> memoryview:
        """In memory of this thread, since each server's blocks come on one of its own."""
        spare: memoryview | None = getattr(self._spares, "memory", None)
        if spare is None or len(spare) < len(memory):
            spare = self._spares.memory = memoryview(bytearray(len(memory)))
        spare[: len(memory)] = memory
        return spare[: len(memory)]
