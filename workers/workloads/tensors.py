"""The flat vectors of a replica as tensors: on its device, or in host memory.

On an accelerator they stay on the device if workers all-reduce. With servers they are in host memory, where sockets
need them.
"""

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from workers.workloads.shape import Replica, Scorer


@runtime_checkable
class Resident(Protocol):
    """A scorer or replica that can keep its vectors on its device."""

    def reside(self) -> None:
        """From now on ``values`` and ``sums`` are used instead of ``parameters`` and ``gradient``."""

    @property
    def values(self) -> torch.Tensor:
        """The flat parameters on the computing device."""


@runtime_checkable
class ResidentReplica(Resident, Protocol):
    """A replica that can keep its vectors on its device."""

    @property
    def sums(self) -> torch.Tensor:
        """The flat gradient sum of the last update, on the computing device."""


def values_of(scorer: Scorer) -> torch.Tensor:
    """The replica's parameters, on its own device if it can keep them there."""
    if isinstance(scorer, Resident):
        scorer.reside()
        return scorer.values
    return torch.from_numpy(scorer.parameters)


def sums_of(replica: Replica) -> torch.Tensor:
    """The replica's gradient sums, on its own device if it can keep them there."""
    if isinstance(replica, ResidentReplica):
        replica.reside()
        return replica.sums
    return torch.from_numpy(replica.gradient)


def numbers(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Read a few numbers from a device in one copy: the only point in an iteration at which the host waits."""
    if not tensors:
        return []
    flat = [tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors]
    found: list[float] = (flat[0] if len(flat) == 1 else torch.cat(flat)).tolist()
    return found


def is_finite(vector: torch.Tensor) -> bool:
    """Whether all elements are finite; usually checked by their sum without extra memory, but that can overflow."""
    return math.isfinite(numbers([vector.sum()])[0]) or bool(numbers([torch.isfinite(vector).all()])[0])


def finish(tensor: torch.Tensor) -> None:
    """Wait until the work queued on the tensor's device, in the current stream, is done."""
    if tensor.device.type in ("cpu", "meta"):
        return
    module = torch.get_device_module(tensor.device)
    if hasattr(module, "current_stream"):
        module.current_stream(tensor.device).synchronize()
    else:
        module.synchronize()
