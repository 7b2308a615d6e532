"""The precision of forward and backward passes: float32, or lower through torch's autocast.

Parameters, gradient sums and optimizers stay float32.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch.utils._pytree import tree_map_only

from controlplane.protocol.training import Precision
from workers.workloads.tensors import numbers

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
FIRST_SCALE: Final = 2.0**10
LARGEST_SCALE: Final = 2.0**24
GROWS_AFTER: Final = 2000
"""After this many updates without an overflow the scale is doubled."""


class Arithmetic:
    """Full precision; the base class of lower ones."""

    def forward(self) -> AbstractContextManager[object]:
        """The context of a forward pass."""
        return nullcontext()

    def outputs(self, outputs: Any) -> Any:
        """A module's output, in the form that the loss needs."""
        return outputs

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The initial gradient of the backward pass."""
        return loss

    def run(self, compute: Callable[[], float], sums: torch.Tensor) -> float:
        """Return the loss of ``compute``; ``sums`` are the gradient sums that it leaves."""
        return compute()


class Autocast(Arithmetic):
    """Lower precision as torch's autocast chooses; bf16 has the range of float32, so no scaling is needed."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device

    def forward(self) -> AbstractContextManager[object]:
        """Autocast."""
        return torch.autocast(self._device.type, dtype=self._dtype)

    def outputs(self, outputs: Any) -> Any:
        """Converted to float32, also within tuples, lists and dicts."""
        return tree_map_only(torch.Tensor, self._full, outputs)

    def _full(self, output: torch.Tensor) -> torch.Tensor:
        return output.float() if output.dtype == self._dtype else output


class Scaled(Autocast):
    """fp16 with loss scaling, since small gradients would be 0: the loss is multiplied, the sums are divided.

    Gradients that overflow are computed again with half the scale, so no sample is dropped from an update.

    Args:
        trained: number of leading elements of the sums that are gradients; the rest is not scaled.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, *, trained: int) -> None:
        super().__init__(dtype, device)
        self._trained, self._fine = trained, 0
        self.scale = FIRST_SCALE

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale."""
        return loss * self.scale

    def run(self, compute: Callable[[], float], sums: torch.Tensor) -> float:
        """Repeat while gradients overflow, down to a scale of 1; a loss that is not a number is handled by the job."""
        gradients = sums[: self._trained]
        while True:
            loss = compute()
            if self.scale <= 1.0 or numbers([torch.isfinite(gradients).all()])[0]:
                break
            self.scale, self._fine = self.scale / 2.0, 0
        gradients /= self.scale
        self._fine += 1
        if self._fine >= GROWS_AFTER:
            self.scale, self._fine = min(2.0 * self.scale, LARGEST_SCALE), 0
        return loss


def arithmetic_of(precision: Precision, device: torch.device, *, trained: int) -> Arithmetic:
    """The arithmetic of that name."""
    if precision == "fp32":
        return Arithmetic()
    if precision == "bf16":
        return Autocast(DTYPES[precision], device)
    return Scaled(DTYPES[precision], device, trained=trained)
