"""What one server does for the checkpoints of its job: keeps its blocks, writes the manifest if asked, begins with one.

In lockstep a block is kept at each version that is a multiple of ``checkpoint.every``, so every block of the job is
kept at the same version, whichever server holds it and whenever it gets there. Without lockstep all are kept at once,
when the orders say that every worker stands.
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
        root: the folder of this machine's agent; None: it has none.
        elements: of the flattened parameters.
        init: gives version 0 of all of them.
        say: told what was written.
        say_apart: told why this machine's folder cannot be used with the other servers'.
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
        self._asked = None if self._only_adds else order.spec.checkpoint
        self._saved_at = -1
        self._writer: Writer | None = None
        if self._asked is not None:
            self._writer = self._place.writer(self._asked.keep, say)
            self._common = self._place.common_folder(say_apart)

    @property
    def found(self) -> tuple[list[FoundCheckpoint], list[str]]:
        """What a job that is to start from a checkpoint can start from here, and why not from others."""
        return ([], []) if self._only_adds else self._place.found

    def beginnings(self, cuts: Iterable[Cut], restore: Restore | None) -> dict[int, Beginning]:
        """What each of these blocks begins with; where servers only add up, nobody pulls that.

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
        """What keeps that block at the versions that checkpoints are made of."""
        if self._asked is None or self._writer is None:
            return None
        return _Keeping(cut, self._asked.every, self._writer)

    def follow(self, orders: ServerOrders, blocks: Mapping[int, Block]) -> None:
        """Keep all blocks as they are, or write a manifest, where the orders say so for the first time."""
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
        """Write what is still to be written."""
        if self._writer is not None:
            self._writer.close()


class _Keeping:
    """One block's."""

    def __init__(self, cut: Cut, every: int, writer: Writer) -> None:
        self._cut, self._every, self._writer = cut, every, writer

    def wants(self, version: int) -> bool:
        """Each ``every``-th; version 0 can be had without."""
        return version > 0 and version % self._every == 0

    def take(self, version: int, steps: int, tensors: dict[str, torch.Tensor]) -> None:
        """On its way to the disk."""
        cut = self._cut
        self._writer.take(Copy(iteration=version, start=cut.start, stop=cut.stop, steps=steps, tensors=tensors))
