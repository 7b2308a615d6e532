"""Checkpoints of one worker, for jobs whose workers hold the parameters.

All of them are the same after each step, so one writes, whom the orders name: every n-th version, cut as servers'
blocks are, so that a job with servers can begin with it too. Each worker begins with what it wrote, from its folder;
so each looks for the writer's mark there when the job begins.
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
    """One worker's part in them, and the parameters that it holds.

    Raises:
        CheckpointError: if the job keeps checkpoints, and this machine has no folder for them.
    """

    def __init__(self, order: ProcessOrder, link: WorkerLink, workload: Workload, local: Local) -> None:
        self._instance, self._link = order.instance, link
        self.sizes = workload.layout.sizes
        """Of the tensors that the parameters consist of, in elements."""
        self.trained = workload.layout.edge
        """Elements in front of the buffers."""
        self.held = LocalParameters(workload, order.spec, self._consider)
        self.initial = checksum(self.held.values.numpy())
        """Of version 0, which every worker creates."""
        self._elements = sum(self.sizes)
        self._place = Place(order, local.checkpoint_dir, elements=self._elements)
        self._checkpoint = order.spec.checkpoint
        self._writer: Writer | None = None
        self._taken = self._settled = 0
        """The version that was last given to the writer; that of which a manifest was, or that could not be written."""
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
        """Look for the writer's mark, or write a manifest, where the orders say so for the first time."""
        if self._writer is None:
            return
        if orders.keeper is not None:
            self._common.compare([orders.keeper])
        if orders.whole is not None:
            self._settled = max(self._settled, orders.whole.iteration)
            self._writer.finish(orders.whole)

    def settle(self) -> None:
        """Write all that was kept, and its manifests once they are requested, before this process ends."""
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
        """Whether the parameters could be brought to where that checkpoint is; if not, that was said."""
        try:
            beginning = self._place.read(restore, 0, self._elements)
            self.held.adopt(beginning.values, beginning.state or {}, beginning.iteration)
        except CheckpointError as error:
            reason = str(error)
            self._link.say(lambda number: RestoreFailed(number=number, iteration=restore.iteration, reason=reason))
            return False
        return True

    def _consider(self, held: LocalParameters) -> None:
        """A step was made: keep what it led to, if that is this worker's to do."""
        orders = self._link.orders()
        if self._writer is None or self._checkpoint is None or held.version % self._checkpoint.every:
            return
        if orders is not None and orders.keeper == self._instance:
            self._taken = held.version
            state = held.rule.state()
            for start in range(0, self._elements, PIECE_ELEMENTS):
                self._writer.take(_copy(held, state, start, min(start + PIECE_ELEMENTS, self._elements)))

    def _say_saved(self, saved: Saved) -> None:
        if saved.failure:  # nothing will be granted; the orders to stop that follow wake waiting threads
            self._settled = max(self._settled, saved.iteration)
        self._link.say(saved.message)

    def _say_apart(self, reason: str) -> None:
        self._link.say(lambda number: FolderApart(number=number, reason=reason))


def _copy(held: LocalParameters, state: Mapping[str, torch.Tensor], start: int, stop: int) -> Copy:
    """One piece, with what the rule remembers of it; what is no entry for each parameter holds for all pieces."""
    everything = {VALUES: held.values} | {f"{STATE}{name}": each for name, each in state.items()}
    whole = held.values.shape
    parts = {name: each[start:stop] if each.shape == whole else each for name, each in everything.items()}
    tensors = {name: torch.empty_like(each, device="cpu").copy_(each) for name, each in parts.items()}
    return Copy(iteration=held.version, start=start, stop=stop, steps=held.version, tensors=tensors)
