"""One process group: sums and copies among the ranks of one generation, until one of them fails.

After a failure the contents of the summed tensors are undefined and the group cannot be used any more. Leaving it
closes its connections, which immediately releases members that still wait in it.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Literal

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    Backend,
    BroadcastOptions,
    ProcessGroupGloo,
    Store,
    Work,
)
from torch.distributed import is_nccl_available

from controlplane.protocol.base import Value

CONNECT_S = 5.0
HOST: Final = "host"
Over = Literal["nccl", "gloo"]


class GroupBroken(RuntimeError):
    """A member failed or timed out; the group must be left."""


class Place(Value, frozen=True, kw_only=True):
    """Rank and address of this process in a group."""

    rank: int
    size: int
    host: str
    """The address at which the others reach it."""


class Pending:
    """An operation in progress on ``carried``; its result is written to ``vector``."""

    def __init__(self, work: Work, carried: torch.Tensor, vector: torch.Tensor) -> None:
        self._work, self._carried, self._vector = work, carried, vector

    def wait(self) -> None:
        """Wait for the result.

        Raises:
            GroupBroken: if a member fails or times out; the contents of the vector are then undefined.
        """
        try:
            self._work.wait()
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error
        if self._carried is not self._vector:
            self._vector.copy_(self._carried)


class Group:
    """One member of a group; all members create it at about the same time.

    Args:
        store: for exchanging addresses, under the group's own prefix.
        place: this process's rank and address.
        over: ``nccl`` between GPUs, where vectors are summed in place; else ``gloo``, in host memory.

    Raises:
        GroupBroken: if the others cannot be reached.
    """

    def __init__(self, store: Store, place: Place, *, over: Over = "gloo") -> None:
        self.size, self._device = place.size, torch.device("cuda" if over == "nccl" else "cpu")
        try:
            self._group: Backend | None = _make(store, place, over)
        except RuntimeError as error:
            raise GroupBroken(f"the group of {place.size} was not made: {_first_line(error)}") from error

    def sum(self, vector: torch.Tensor, *, timeout_s: float) -> None:
        """Replace ``vector`` by the sum over all members.

        Raises:
            GroupBroken: if a member fails or ``timeout_s`` is over; the contents of the vector are then undefined.
        """
        self.begin_sum(vector, timeout_s=timeout_s).wait()

    def begin_sum(self, vector: torch.Tensor, *, timeout_s: float, dtype: torch.dtype | None = None) -> "Pending":
        """Start replacing ``vector`` by the sum over all members; it must not be used until the result was awaited.

        It is sent as ``dtype``; None: unchanged.

        Raises:
            GroupBroken: if a member has failed.
        """
        options = AllreduceOptions()
        options.timeout = timedelta(seconds=timeout_s)
        carried = vector.to(self._device, dtype)
        work = self._begin(lambda group: group.allreduce([carried], options))
        return Pending(work, carried, vector)

    def copy(self, tensor: torch.Tensor, *, root: int, timeout_s: float) -> None:
        """Replace ``tensor`` by that of the member ``root``.

        Raises:
            GroupBroken: as ``sum``.
        """
        options = BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        options.timeout = timedelta(seconds=timeout_s)
        carried = tensor.to(self._device)
        Pending(self._begin(lambda group: group.broadcast([carried], options)), carried, tensor).wait()

    def leave(self) -> None:
        """Close the connections to the others."""
        group, self._group = self._group, None
        if group is not None and self._device.type == "cuda":
            group.abort()  # nothing else closes NCCL's connections while an operation is in progress

    def _begin(self, begin: Callable[[Any], Work]) -> Work:
        if self._group is None:
            raise GroupBroken("this process has left the group")
        try:
            return begin(self._group)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error


def identity_of(device: str) -> str:
    """The member's name for the device of its vectors: the GPU's UUID if NCCL can use it."""
    if torch.device(device).type != "cuda" or not is_nccl_available():
        return HOST
    return str(torch.cuda.get_device_properties(device).uuid)


def over_of(identities: Sequence[str]) -> Over:
    """NCCL if each member has a GPU to itself: NCCL does not support two ranks on one GPU, nor CPUs."""
    return "gloo" if HOST in identities or len(set(identities)) < len(identities) else "nccl"


def _make(store: Store, place: Place, over: Over) -> Backend:
    if over == "nccl":
        from torch.distributed import ProcessGroupNCCL  # not in CPU builds of torch

        # A failed or late sum must raise where it is awaited, and not end the process (torch's default).
        os.environ.update(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
        nccl: Backend = ProcessGroupNCCL(store, place.rank, place.size, ProcessGroupNCCL.Options())
        return nccl
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=place.host)]
    options._timeout = timedelta(seconds=CONNECT_S)
    return ProcessGroupGloo(store, place.rank, place.size, options)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
