"""What one server does for the checkpoints of its job: keeps its blocks, writes the manifest if asked, begins with one.

In lockstep a block is kept at each version that is a multiple of ``checkpoint.every``, so every block of the job is
kept at the same version, whichever server holds it and whenever it gets there. Without lockstep all are kept at once,
when the orders say that every worker stands.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from controlplane.protocol.checkpoints import FoundCheckpoint, Restore, WholeCheckpoint
from controlplane.protocol.orders import Block as Cut
from controlplane.protocol.orders import ProcessOrder, ServerOrders
from workers.server import checkpoint_files as files
from workers.server.baggage import STATE, VALUES
from workers.server.block import Block, Keep
from workers.server.checkpoint_writer import Copy, Saved, Writer
from workers.server.common_folder import CommonFolder
from workers.workloads.shape import Vector

NO_FOLDER = "its agent has no folder for checkpoints: see --checkpoint-dir"


@dataclass(slots=True, kw_only=True)
class Beginning:
    """What a block begins with."""

    values: Vector
    iteration: int = 0
    steps: int = 0
    state: Mapping[str, torch.Tensor] | None = None


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
        self._order, self._root, self._elements, self._init = order, root, elements, init
        self._asked = order.spec.checkpoint
        self._saved_at = -1
        self._writer: Writer | None = None
        if self._asked is not None:
            self._writer = Writer(self._own, keep=self._asked.keep, manifest=self._manifest, say=say)
            self._common = CommonFolder(self._own, order.instance, say_apart)

    @property
    def found(self) -> tuple[list[FoundCheckpoint], list[str]]:
        """What a job that is to start from a checkpoint can start from here, and why not from others."""
        folders = self._order.checkpoints
        if self._order.spec.start_from is None or folders is None:
            return [], []
        if self._root is None:
            return [], [NO_FOLDER]
        return files.find(self._root / folders.start, self._elements)

    def beginnings(self, cuts: Iterable[Cut], restore: Restore | None) -> dict[int, Beginning]:
        """What each of these blocks begins with.

        Raises:
            CheckpointError: if the checkpoint cannot be used.
        """
        if restore is None:
            initial = self._init()
            return {cut.index: Beginning(values=initial[cut.start : cut.stop].copy()) for cut in cuts}
        folder = files.folder_of(self._start if restore.is_start else self._own, restore.iteration)
        return {cut.index: _beginning(folder, cut, restore.iteration) for cut in cuts}

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

    @property
    def _own(self) -> Path:
        name = self._order.checkpoints.own if self._order.checkpoints else f"job-{self._order.job}"
        return self._below(name)

    @property
    def _start(self) -> Path:
        return self._below(self._order.checkpoints.start if self._order.checkpoints else "")

    def _below(self, name: str) -> Path:
        if self._root is None:
            raise files.CheckpointError(NO_FOLDER)
        return self._root / name

    def _manifest(self, whole: WholeCheckpoint) -> files.Manifest:
        spec = self._order.spec
        return files.Manifest(
            job=self._order.job,
            name=spec.name,
            iteration=whole.iteration,
            position=whole.position,
            seed=spec.seed,
            workload=msgspec.to_builtins(spec.workload),
            optimizer=msgspec.to_builtins(spec.optimizer),
            elements=self._elements,
            pieces=sorted(whole.pieces, key=lambda piece: piece.start),
        )


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


def _beginning(folder: Path, cut: Cut, iteration: int) -> Beginning:
    tensors, steps = files.read_block(folder, cut.start, cut.stop)
    state = {name.removeprefix(STATE): tensor for name, tensor in tensors.items() if name != VALUES}
    return Beginning(values=tensors[VALUES].numpy(), iteration=iteration, steps=steps, state=state)
