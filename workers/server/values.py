"""A block's values, the rule that changes them, and their readers.

Sending takes no lock: values that are being read are never written, so a step is made in place if there is no reader,
else on a copy, and a slow reader delays nothing. Everything else happens under the lock of the block.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from workers.server.contribution import Sum
from workers.workloads.shape import Clipping, Rule

Array = npt.NDArray[np.float32]
MakeRule = Callable[[torch.Tensor, int], Rule]
"""Makes the rule of the values of one block, which begins there in the flat vector."""


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The values as they were after so many steps. While anybody reads them, they do not change."""

    steps: int
    values: Array
    readers: int = 0


class Values:
    """The values of one block and their rule.

    Args:
        values: owned from now on.
        make_rule: what a complete sum does to the values.
        start: where they begin in the flat vector.
    """

    def __init__(self, values: Array, make_rule: MakeRule, *, start: int = 0) -> None:
        self.start = start
        self._values = torch.from_numpy(values)
        self._rule = make_rule(self._values, start)
        self._snapshot = Snapshot(steps=0, values=values)

    @property
    def steps(self) -> int:
        """How often they were changed: the version of the block's values."""
        return self._snapshot.steps

    @property
    def block_bytes(self) -> int:
        """Their size in bytes."""
        return self._values.nbytes

    @property
    def tensor(self) -> torch.Tensor:
        """The values themselves."""
        return self._values

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The rule's state."""
        return self._rule.state()

    def resume(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Continue from the state of the rule that had the same values before, after so many steps."""
        self._rule.restore(state)
        self._snapshot = Snapshot(steps=steps, values=self._snapshot.values)

    def borrow(self) -> Snapshot:
        """The values as they are, to be given back."""
        self._snapshot.readers += 1
        return self._snapshot

    def give_back(self, snapshot: Snapshot) -> None:
        """The reader of a borrowed snapshot is done with it."""
        snapshot.readers -= 1

    def squared_norm(self, growing: Sum) -> float:
        """The norm of the mean of ``growing``, over what an optimizer changes; 0 where it has no samples.

        Raises:
            TypeError: if the rule cannot say.
        """
        if not isinstance(self._rule, Clipping):
            raise TypeError(f"{type(self._rule).__name__} does not say the norm of a gradient")
        return self._rule.squared_norm(growing.total, growing.samples) if growing.samples else 0.0

    def apply(self, growing: Sum, *, scale: float = 1.0, norm: float | None = None) -> None:
        """A step by ``growing``; none where it has no samples. ``scale`` is that of the step.

        ``norm`` is that of the mean gradient of all blocks, where a step depends on it.
        """
        if not growing.samples:
            return
        self._detach_from_readers()
        if norm is not None and isinstance(self._rule, Clipping):
            self._rule.apply(growing.total, growing.samples, scale, norm=norm)
        else:
            self._rule.apply(growing.total, growing.samples, scale)
        self._snapshot = Snapshot(steps=self.steps + 1, values=self._values.numpy())

    def _detach_from_readers(self) -> None:
        """If a reader still has the values, give it a copy; the optimizer keeps its reference to the tensor."""
        if self._snapshot.readers:
            self._values.data = self._values.clone()
