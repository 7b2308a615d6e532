"""The location of a job's checkpoints below its agent's folder, and the contents of their manifests."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from controlplane.protocol.checkpoints import FoundCheckpoint, Restore, WholeCheckpoint
from controlplane.protocol.orders import ProcessOrder
from workers.checkpoints import files
from workers.checkpoints.common_folder import CommonFolder
from workers.checkpoints.writer import Saved, Writer
from workers.workloads.shape import Vector

NO_FOLDER = "its agent has no folder for checkpoints: see --checkpoint-dir"


@dataclass(slots=True, kw_only=True)
class Beginning:
    """Initial values of parameters."""

    values: Vector
    iteration: int = 0
    steps: int = 0
    state: Mapping[str, torch.Tensor] | None = None


class Place:
    """The checkpoints of a job, as one of its processes uses them.

    Args:
        root: the checkpoint folder of this machine's agent; None: it has none.
        elements: number of elements of the flattened parameters.
    """

    def __init__(self, order: ProcessOrder, root: Path | None, *, elements: int) -> None:
        self._order, self._root, self._elements = order, root, elements

    @property
    def own(self) -> Path:
        """The folder to which this job writes.

        Raises:
            CheckpointError: if the agent has no folder.
        """
        folders = self._order.checkpoints
        return self._below(folders.own if folders else f"job-{self._order.job}")

    @property
    def found(self) -> tuple[list[FoundCheckpoint], list[str]]:
        """The checkpoint on this machine that a job can start from, and why the others are unusable."""
        folders = self._order.checkpoints
        if self._order.spec.start_from is None or folders is None:
            return [], []
        if self._root is None:
            return [], [NO_FOLDER]
        return files.find(self._root / folders.start, self._elements)

    def read(self, restore: Restore, start: int, stop: int) -> Beginning:
        """Read the parameters ``start`` to ``stop`` of the checkpoint that this instance starts from.

        Raises:
            CheckpointError: if it cannot be used.
        """
        tensors, steps = files.read_block(self._folder_of(restore), start, stop)
        state = {name.removeprefix(files.STATE): each for name, each in tensors.items() if name != files.VALUES}
        values = tensors[files.VALUES].numpy()
        return Beginning(values=values, iteration=restore.iteration, steps=steps, state=state)

    def writer(self, keep: int, say: Callable[[Saved], None]) -> Writer:
        """A writer of checkpoints that keeps the newest ``keep``; ``say`` is called with what was written.

        Raises:
            CheckpointError: if the agent has no folder.
        """
        return Writer(self.own, keep=keep, manifest=self._manifest, say=say)

    def common_folder(self, say: Callable[[str], None]) -> CommonFolder:
        """A check that the other servers write to the same folder; ``say`` is called with the reason if they do not.

        Raises:
            CheckpointError: if the agent has no folder.
        """
        return CommonFolder(self.own, self._order.instance, say)

    def _manifest(self, whole: WholeCheckpoint) -> files.Manifest:
        """The manifest of a checkpoint whose pieces are all written."""
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

    def _folder_of(self, restore: Restore) -> Path:
        if not restore.is_start:
            return files.folder_of(self.own, restore.iteration)
        folders = self._order.checkpoints
        return files.folder_of(self._below(folders.start if folders else ""), restore.iteration)

    def _below(self, name: str) -> Path:
        if self._root is None:
            raise files.CheckpointError(NO_FOLDER)
        return self._root / name
