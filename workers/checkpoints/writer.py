"""Writes blocks of a version in a thread while they are served, and reports success or failure."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
import torch

from controlplane.protocol.checkpoints import SavedBlock, WholeCheckpoint
from controlplane.protocol.messages import CheckpointSaved
from workers.checkpoints import files

log = structlog.get_logger("checkpoint")
TOGETHER: Final = 500
"""Maximum number of pieces per message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A copy of one block as it was before ``iteration``."""

    iteration: int
    start: int
    stop: int
    steps: int
    tensors: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The report: pieces that were written, or a manifest, or the reason for a failure."""

    iteration: int
    pieces: list[SavedBlock]
    is_whole: bool = False
    failure: str = ""
    is_spoilt: bool = False

    def message(self, number: int) -> CheckpointSaved:
        """The message to the control plane."""
        return CheckpointSaved(
            number=number,
            iteration=self.iteration,
            pieces=self.pieces,
            is_whole=self.is_whole,
            failure=self.failure,
            is_spoilt=self.is_spoilt,
        )


class Writer:
    """The writer thread.

    Args:
        folder: of the job's checkpoints.
        manifest: builds a manifest from the control plane's data.
        say: called with what was written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        manifest: Callable[[WholeCheckpoint], files.Manifest],
        say: Callable[[Saved], None],
    ) -> None:
        self._folder, self._keep, self._manifest, self._say = folder, keep, manifest, say
        self._work: queue.SimpleQueue[Copy | WholeCheckpoint | None] = queue.SimpleQueue()
        self._back: list[Copy | WholeCheckpoint | None] = []
        """An entry that was taken from the queue too early; it is the next one."""
        self._whole = -1
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def take(self, copy: Copy) -> None:
        """Queue this block. Called under the block's lock, so it does no work."""
        self._work.put(copy)

    def finish(self, whole: WholeCheckpoint) -> None:
        """Write the manifest, once."""
        if whole.iteration > self._whole:
            self._whole = whole.iteration
            self._work.put(whole)

    def close(self) -> None:
        """Write what is pending, and end."""
        self._work.put(None)
        self._thread.join(5.0)

    def _run(self) -> None:
        while (work := self._back.pop() if self._back else self._work.get()) is not None:
            if isinstance(work, WholeCheckpoint):
                self._finish(work)
            else:
                self._write([work, *self._more(work.iteration)])

    def _more(self, iteration: int) -> list[Copy]:
        """Other pending reports of the same iteration, to be sent together."""
        found: list[Copy] = []
        while len(found) < TOGETHER - 1:
            try:
                work = self._work.get_nowait()
            except queue.Empty:
                break
            if not isinstance(work, Copy) or work.iteration != iteration:
                self._back.append(work)
                break
            found.append(work)
        return found

    def _write(self, copies: list[Copy]) -> None:
        iteration = copies[0].iteration
        if not all(bool(torch.isfinite(copy.tensors[files.VALUES]).all()) for copy in copies):
            failure = f"the parameters that iteration {iteration} begins with are not finite numbers"
            log.error(failure)
            self._say(Saved(iteration=iteration, pieces=[], failure=failure, is_spoilt=True))
            return
        folder = files.folder_of(self._folder, iteration)
        try:
            pieces = [files.write_piece(folder, c.start, c.stop, c.steps, c.tensors) for c in copies]
        except (OSError, ValueError) as error:
            self._fail(iteration, error)
        else:
            self._say(Saved(iteration=iteration, pieces=pieces))

    def _finish(self, whole: WholeCheckpoint) -> None:
        try:
            files.write_manifest(files.folder_of(self._folder, whole.iteration), self._manifest(whole))
        except OSError as error:
            self._fail(whole.iteration, error)
            return
        self._say(Saved(iteration=whole.iteration, pieces=[], is_whole=True))
        files.keep_newest(self._folder, self._keep)

    def _fail(self, iteration: int, error: Exception) -> None:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        failure = f"the checkpoint of iteration {iteration} cannot be written to {self._folder}: {reason}"
        log.error(failure)
        self._say(Saved(iteration=iteration, pieces=[], failure=failure))
