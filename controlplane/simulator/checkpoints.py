"""Checkpoints in virtual time: servers save and report as in ``workers.server.checkpointing``.

In lockstep every n-th version is saved; in asynchronous modes, the current values when orders say that every worker has
stopped. One server writes the manifest when ordered to. Files are written during training, at the speed of the servers'
disks.
"""

from collections.abc import Callable
from typing import Final, Protocol

from controlplane.protocol.checkpoints import SavedBlock
from controlplane.protocol.messages import CheckpointSaved
from controlplane.protocol.orders import Block, ServerOrders
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.server_processes import ServerProcesses

MOST_KEPT: Final = 16
"""How many checkpoints' values are kept here: more than a job has on disk and in progress."""


class Values(Protocol):
    """The parameters, if they are computed."""

    def state(self) -> object:
        """The content of a checkpoint."""

    def restore(self, state: object) -> None:
        """Restore that content."""


class Checkpoints:
    """The checkpoints of one job: every ``every`` versions, or none."""

    def __init__(
        self,
        kernel: Kernel,
        processes: ServerProcesses,
        values: Values | None,
        *,
        every: int | None,
        write_s: Callable[[int, int], float],
    ) -> None:
        """``write_s``: maps a server and a number of bytes to the time that writing takes."""
        self._kernel, self._processes, self._values, self._every, self._write_s = (
            kernel,
            processes,
            values,
            every,
            write_s,
        )
        self._start = values.state() if values is not None else None
        self._kept: dict[int, object] = {}
        self._blocks: dict[int, list[Block]] = {}
        self._saved_at: dict[str, int] = {}
        self._manifests: set[tuple[str, int]] = set()

    def reach(self, version: int) -> None:
        """The parameters have reached that version with all workers' updates."""
        if self._every is not None and version % self._every == 0:
            self._keep(version)
            for index in sorted(self._blocks):
                self._save(index, version)

    def receive(self, index: int, orders: ServerOrders) -> None:
        """Orders for one server."""
        self._blocks[index] = orders.blocks
        if self._every is None:
            return
        instance = self._processes.instance(index)
        if orders.save_at is not None and orders.save_at > self._saved_at.get(instance, -1):
            self._saved_at[instance] = orders.save_at
            if orders.save_at not in self._kept:
                self._keep(orders.save_at)
            self._save(index, orders.save_at)
        if orders.whole is not None and (instance, orders.whole.iteration) not in self._manifests:
            self._manifests.add((instance, orders.whole.iteration))
            self._say(index, orders.whole.iteration, [], is_whole=True)

    def go_back(self, iteration: int) -> None:
        """Restore the values of that checkpoint; for 0, the initial values."""
        self._blocks = {}
        if self._values is not None:
            self._values.restore(self._kept[iteration] if iteration else self._start)

    def _keep(self, iteration: int) -> None:
        self._kept[iteration] = self._values.state() if self._values is not None else None
        for old in sorted(self._kept)[:-MOST_KEPT]:
            del self._kept[old]

    def _save(self, index: int, iteration: int) -> None:
        blocks = self._blocks[index]
        if blocks:
            pieces = [
                SavedBlock(start=each.start, stop=each.stop, steps=iteration, bytes=each.bytes, checksum=0)
                for each in blocks
            ]
            self._say(index, iteration, pieces, is_whole=False)

    def _say(self, index: int, iteration: int, pieces: list[SavedBlock], *, is_whole: bool) -> None:
        took_s = self._write_s(index, sum(piece.bytes for piece in pieces))
        saved = (index, self._processes.instance(index), iteration, pieces, is_whole)
        self._kernel.after(took_s, self._written, *saved)

    def _written(self, index: int, instance: str, iteration: int, pieces: list[SavedBlock], is_whole: bool) -> None:
        self._processes.say(
            index,
            instance,
            lambda number: CheckpointSaved(number=number, iteration=iteration, pieces=pieces, is_whole=is_whole),
        )
