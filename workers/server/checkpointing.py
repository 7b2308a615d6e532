"""Checkpoints of one server: saves its blocks, writes the manifest on request, restores from a checkpoint.

In a synchronous job a block is saved at each version that is a multiple of ``checkpoint.every``, so all blocks are
saved at the same version on all servers. In an asynchronous job all blocks are saved at once, when the orders say that
every worker is quiesced.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from controlplane.protocol.checkpoints import FoundCheckpoint, Restore
from controlplane.protocol.orders import Block as Cut
from controlplane.protocol.orders import ProcessOrder, ServerOrders
from workers.checkpoints.place import Beginning, Place
from workers.checkpoints.writer import Copy, Saved, Writer
from workers.server.block import Block, Keep
from workers.workloads.shape import Vector


class Checkpoints:
    """One server's part in the checkpoints of its job.

    Args:
        root: the checkpoint folder of this machine's agent; None: it has none.
        elements: number of elements of the flattened parameters.
        init: returns version 0 of all of them.
        say: called with what was written.
        say_apart: called with the reason if this machine's folder is not the other servers'.
    """

    def __init__(
        self,
        order: ProcessOrder,
        root: Path | None,
        *,
        elements: int,
        init: Callable[[], Vector],
        say: Callable[[Saved], None],
        say_apart: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._place, self._init = Place(order, root, elements=elements), init
        self._only_adds = order.spec.workers_hold
        self._checkpoint = None if self._only_adds else order.spec.checkpoint
        self._saved_at = -1
        self._writer: Writer | None = None
        if self._checkpoint is not None:
            self._writer = self._place.writer(self._checkpoint.keep, say)
            self._common = self._place.common_folder(say_apart)

    @property
    def found(self) -> tuple[list[FoundCheckpoint], list[str]]:
        """The checkpoints that a job can start from on this machine, and why others are unusable."""
        return ([], []) if self._only_adds else self._place.found

    def beginnings(self, cuts: Iterable[Cut], restore: Restore | None) -> dict[int, Beginning]:
        """Initial values of these blocks; with aggregating servers they are never pulled.

        Raises:
            CheckpointError: if the checkpoint cannot be used.
        """
        if restore is None or self._only_adds:
            initial, iteration = self._init(), 0 if restore is None else restore.iteration
            return {
                cut.index: Beginning(values=initial[cut.start : cut.stop].copy(), iteration=iteration) for cut in cuts
            }
        return {cut.index: self._place.read(restore, cut.start, cut.stop) for cut in cuts}

    def keep(self, cut: Cut) -> Keep | None:
        """A saver of that block, for the versions of checkpoints."""
        if self._checkpoint is None or self._writer is None:
            return None
        return _Keeping(cut, self._checkpoint.every, self._writer)

    def follow(self, orders: ServerOrders, blocks: Mapping[int, Block]) -> None:
        """Save all blocks or write a manifest, when orders request it for the first time."""
        if self._writer is None:
            return
        self._common.compare(orders.beside)
        if orders.save_at is not None and orders.save_at > self._saved_at:
            self._saved_at = orders.save_at
            for cut in orders.blocks:
                block = blocks[cut.index]
                block.flush()
                copy = Copy(
                    iteration=orders.save_at, start=cut.start, stop=cut.stop, steps=block.steps, tensors=block.copy()
                )
                self._writer.take(copy)
        if orders.whole is not None:
            self._writer.finish(orders.whole)

    def close(self) -> None:
        """Finish pending writes."""
        if self._writer is not None:
            self._writer.close()


class _Keeping:
    """The saver of one block."""

    def __init__(self, cut: Cut, every: int, writer: Writer) -> None:
        self._cut, self._every, self._writer = cut, every, writer

    def wants(self, version: int) -> bool:
        """Every ``every``-th version except 0, which can be computed."""
        return version > 0 and version % self._every == 0

    def take(self, version: int, steps: int, tensors: dict[str, torch.Tensor]) -> None:
        """Queue the copy for the writer."""
        cut = self._cut
        self._writer.take(Copy(iteration=version, start=cut.start, stop=cut.stop, steps=steps, tensors=tensors))
