"""One process group: sums and copies among the ranks of one generation, until any of them fails.

After a failure the contents of what was being summed are undefined and the group is of no use any more. Leaving it
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
    """A member is gone, or did not answer in time; the group must be left."""


class Place(Value, frozen=True, kw_only=True):
    """Which member of a group this process is."""

    rank: int
    size: int
    host: str
    """The address at which the others reach it."""


class Pending:
    """An operation under way on ``carried``, whose result belongs into ``vector``."""

    def __init__(self, work: Work, carried: torch.Tensor, vector: torch.Tensor) -> None:
        self._work, self._carried, self._vector = work, carried, vector

    def wait(self) -> None:
        """Until the result is there.

        Raises:
            GroupBroken: if a member fails or is too late; the vector is undefined then.
        """
        try:
            self._work.wait()
        except RuntimeError as error:
            raise GroupBroken(_first_line(error)) from error
        if self._carried is not self._vector:
            self._vector.copy_(self._carried)


class Group:
    """A member's end of a group; made when all members are about to make theirs.

    Args:
        store: where addresses are exchanged, under a prefix of the group's own.
        place: which member this is.
        over: ``nccl`` between GPUs, where vectors are summed where they lie; else ``gloo``, in the host's memory.

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
            GroupBroken: if a member fails or ``timeout_s`` is over; the vector is undefined then.
        """
        self.begin_sum(vector, timeout_s=timeout_s).wait()

    def begin_sum(self, vector: torch.Tensor, *, timeout_s: float, dtype: torch.dtype | None = None) -> "Pending":
        """Begin to replace ``vector`` by the sum over all members; it is not to be touched until that is waited for.

        It travels as ``dtype``; None: as it is.

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
            group.abort()  # NCCL's are closed by nothing else while an operation is under way

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
    """The member's name for the device of its vectors: a GPU's own name if NCCL can use it."""
    if torch.device(device).type != "cuda" or not is_nccl_available():
        return HOST
    return str(torch.cuda.get_device_properties(device).uuid)


def over_of(identities: Sequence[str]) -> Over:
    """NCCL where each member has a GPU to itself: it refuses two on one, and knows no processors."""
    return "gloo" if HOST in identities or len(set(identities)) < len(identities) else "nccl"


def _make(store: Store, place: Place, over: Over) -> Backend:
    if over == "nccl":
        from torch.distributed import ProcessGroupNCCL  # builds of torch for processors lack it

        # A sum that fails or is late is to raise where it is waited for, not to end the process (torch's default).
        os.environ.update(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
        nccl: Backend = ProcessGroupNCCL(store, place.rank, place.size, ProcessGroupNCCL.Options())
        return nccl
    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=place.host)]
    options._timeout = timedelta(seconds=CONNECT_S)
    return ProcessGroupGloo(store, place.rank, place.size, options)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
