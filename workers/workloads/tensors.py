"""The flat vectors of a replica as tensors: where it computes, or the host's memory as it is.

On an accelerator they stay there where workers sum by all-reduce. With servers they are in host memory, since sockets
need them there.
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
        """From now on ``values`` and ``sums`` count, in the place of ``parameters`` and ``gradient``."""

    @property
    def values(self) -> torch.Tensor:
        """The parameters, flat, where they are computed with."""


@runtime_checkable
class ResidentReplica(Resident, Protocol):
    """A replica that can."""

    @property
    def sums(self) -> torch.Tensor:
        """The sum of gradients of the last update, flat, where it was computed."""


def values_of(scorer: Scorer) -> torch.Tensor:
    """Its parameters, on its own device if it can keep them there."""
    if isinstance(scorer, Resident):
        scorer.reside()
        return scorer.values
    return torch.from_numpy(scorer.parameters)


def sums_of(replica: Replica) -> torch.Tensor:
    """Its sums of gradients, on its own device if it can keep them there."""
    if isinstance(replica, ResidentReplica):
        replica.reside()
        return replica.sums
    return torch.from_numpy(replica.gradient)


def numbers(tensors: Sequence[torch.Tensor]) -> list[float]:
    """A few numbers of a device, read in one copy: the only thing of an iteration that a host waits for."""
    if not tensors:
        return []
    flat = [tensor.detach().reshape(-1).to(torch.float64) for tensor in tensors]
    found: list[float] = (flat[0] if len(flat) == 1 else torch.cat(flat)).tolist()
    return found


def is_finite(vector: torch.Tensor) -> bool:
    """Whether all of it is; the sum mostly shows it without extra memory, but it can overflow."""
    return math.isfinite(numbers([vector.sum()])[0]) or bool(numbers([torch.isfinite(vector).all()])[0])


def finish(tensor: torch.Tensor) -> None:
    """Wait until what was begun on the tensor's device, in the present stream, is done."""
    if tensor.device.type in ("cpu", "meta"):
        return
    module = torch.get_device_module(tensor.device)
    if hasattr(module, "current_stream"):
        module.current_stream(tensor.device).synchronize()
    else:
        module.synchronize()
