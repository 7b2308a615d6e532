"""Checkpoints of one worker, for jobs whose workers hold the parameters.

All workers have the same parameters after each step, so the one in the orders saves them: every n-th version, divided
as servers' blocks are, so that a job with servers can start from it too. Each worker restores from its own folder; so
each checks for the writer's marker there when the job begins.
"""

from collections.abc import Mapping
from typing import Final

import structlog
import torch

from controlplane.protocol.checkpoints import FoundCheckpoint, Restore
from controlplane.protocol.messages import FolderApart, RestoreFailed
from controlplane.protocol.orders import Orders, ProcessOrder
from workers.checkpoints.files import STATE, VALUES, CheckpointError
from workers.checkpoints.place import Place
from workers.checkpoints.writer import Copy, Saved, Writer
from workers.link import WorkerLink
from workers.trainer.parameters import LocalParameters
from workers.workloads.local import Local
from workers.workloads.shape import Workload, checksum

PIECE_ELEMENTS = 1 << 20
"""4 MiB of float32."""

LAST_S: Final = 60.0
"""How long a finished worker waits for permission to write the last manifest."""

log = structlog.get_logger("checkpoint")


class Keeper:
    """One worker's part in checkpoints, and the parameters that it holds.

    Raises:
        CheckpointError: if the job saves checkpoints, but this machine has no folder for them.
    """

    def __init__(self, order: ProcessOrder, link: WorkerLink, workload: Workload, local: Local) -> None:
        self._instance, self._link = order.instance, link
        self.sizes = workload.layout.sizes
        """Of the tensors that the parameters consist of, in elements."""
        self.trained = workload.layout.edge
        """Number of elements before the buffers."""
        self.held = LocalParameters(workload, order.spec, self._consider)
        self.initial = checksum(self.held.values.numpy())
        """Version 0, which every worker computes."""
        self._elements = sum(self.sizes)
        self._place = Place(order, local.checkpoint_dir, elements=self._elements)
        self._checkpoint = order.spec.checkpoint
        self._writer: Writer | None = None
        self._taken = self._settled = 0
        """The last version passed to the writer, and the last one with a manifest or a failure."""
        if self._checkpoint is not None:
            self._writer = self._place.writer(self._checkpoint.keep, self._say_saved)
            self._common = self._place.common_folder(self._say_apart)

    def __enter__(self) -> "Keeper":
        return self

    def __exit__(self, *_: object) -> None:
        """Finish pending writes."""
        self._close()

    @property
    def found(self) -> tuple[list[FoundCheckpoint], list[str]]:
        """The checkpoints that a job can start from on this machine, and why others are unusable."""
        return self._place.found

    def follow(self, orders: Orders) -> None:
        """Check for the writer's marker, or write a manifest, if the orders request it for the first time."""
        if self._writer is None:
            return
        if orders.keeper is not None:
            self._common.compare([orders.keeper])
        if orders.whole is not None:
            self._settled = max(self._settled, orders.whole.iteration)
            self._writer.finish(orders.whole)

    def settle(self) -> None:
        """Before this process ends, write all that was saved, and the manifests once they are requested."""
        if self._settled < self._taken:
            log.info(f"waiting until the checkpoint of iteration {self._taken} may be finished")
            orders = self._link.await_orders(self._may_settle, LAST_S)
            if orders is not None:
                self.follow(orders)
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _may_settle(self, orders: Orders) -> bool:
        requested = orders.whole.iteration if orders.whole is not None else 0
        return max(requested, self._settled) >= self._taken or orders.keeper != self._instance

    def begin(self, restore: Restore) -> bool:
        """Restore the parameters from that checkpoint; return whether it succeeded. A failure was reported."""
        try:
            beginning = self._place.read(restore, 0, self._elements)
            self.held.adopt(beginning.values, beginning.state or {}, beginning.iteration)
        except CheckpointError as error:
            reason = str(error)
            self._link.say(lambda number: RestoreFailed(number=number, iteration=restore.iteration, reason=reason))
            return False
        return True

    def _consider(self, held: LocalParameters) -> None:
        """After a step: save the result, if it is this worker's task."""
        orders = self._link.orders()
        if self._writer is None or self._checkpoint is None or held.version % self._checkpoint.every:
            return
        if orders is not None and orders.keeper == self._instance:
            self._taken = held.version
            state = held.rule.state()
            for start in range(0, self._elements, PIECE_ELEMENTS):
                self._writer.take(_copy(held, state, start, min(start + PIECE_ELEMENTS, self._elements)))

    def _say_saved(self, saved: Saved) -> None:
        if saved.failure:  # no manifest follows; the orders to stop that follow wake waiting threads
            self._settled = max(self._settled, saved.iteration)
        self._link.say(saved.message)

    def _say_apart(self, reason: str) -> None:
        self._link.say(lambda number: FolderApart(number=number, reason=reason))


def _copy(held: LocalParameters, state: Mapping[str, torch.Tensor], start: int, stop: int) -> Copy:
    """One piece with the rule's state for it; state without an entry per parameter applies to all pieces."""
    everything = {VALUES: held.values} | {f"{STATE}{name}": each for name, each in state.items()}
    whole = held.values.shape
    parts = {name: each[start:stop] if each.shape == whole else each for name, each in everything.items()}
    tensors = {name: torch.empty_like(each, device="cpu").copy_(each) for name, each in parts.items()}
    return Copy(iteration=held.version, start=start, stop=stop, steps=held.version, tensors=tensors)
