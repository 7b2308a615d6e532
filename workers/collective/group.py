"""One process group: sums and copies among the ranks of one generation, until any of them fails.

After a failure the contents of what was being summed are undefined and the group is of no use any more. Leaving it
closes its connections, which frees everybody who still waits in it at once.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    Backend,
    BroadcastOptions,
    ProcessGroupGloo,
    Store,
    Work,
)

from controlplane.protocol.base import Value

CONNECT_S = 5.0


class GroupBroken(RuntimeError):
    """A member is gone, or did not answer in time; the group must be left."""


class Place(Value, frozen=True, kw_only=True):
    """Which member of a group this process is."""

    rank: int
    size: int
    host: str
    """The address at which the others reach it."""


class Group:
    """A member's end of a group; made when all members are about to make theirs.

    Args:
        store: where addresses are exchanged, under a prefix of the group's own.
        place: which member this is.
        device: ``cuda``: NCCL between accelerators; else gloo.

    Raises:
        GroupBroken: if the others cannot be reached.
    """

    def __init__(self, store: Store, place: Place, *, device: str = "cpu") -> None:
        self.size, self._device = place.size, torch.device(device)
        try:
            self._group: Backend | None = _make(store, place, self._device)
        except RuntimeError as error:
            raise GroupBroken(f"the group of {place.size} was not made: {_first_line(error)}") from error

    def sum(self, vector: torch.Tensor, *, timeout_s: float) -> None:
        """Replace ``vector`` by the sum over all members.

        Raises:
            GroupBroken: if a member fails or ``timeout_s`` is over; the vector is undefined then.
        """
        options = AllreduceOptions()
        options.timeout = timedelta(seconds=timeout_s)
        on_device = vector.to(self._device)
        self._do(lambda group: group.allreduce([on_device], options))
        if on_device is not vector:
            vector.copy_(on_device)

    def copy(self, tensor: torch.Tensor, *, root: int, timeout_s: float) -> None:
        """Replace ``tensor`` by that of the member ``root``.

        Raises:
            GroupBroken: as ``sum``.
        """
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        options.timeout = timedelta(seconds=timeout_s)
        on_device = tensor.to(self._device)
        self._do(lambda group: group.broadcast([on_device], options))
        if on_device is not tensor:
            tensor.copy_(on_device)

    def leave(self) -> None:
        """Close the connections to the others."""
        self._group = None

    def _do(self, begin: Callable[[Any], Work]) -> None:
        if self._group is None:
            raise GroupBroken("this process has left the group")
        try:
            begin(self._group).wait()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error


def _make(store: Store, place: Place, device: torch.device) -> Backend:
    if device.type == "cuda":
        from torch.distributed import ProcessGroupNCCL  # builds of torch for processors lack it

        nccl: Backend = ProcessGroupNCCL(store, place.rank, place.size, ProcessGroupNCCL.Options())
        return nccl
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=place.host)]
    options._timeout = timedelta(seconds=CONNECT_S)
    return ProcessGroupGloo(store, place.rank, place.size, options)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
