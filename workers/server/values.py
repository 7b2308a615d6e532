"""A block's values, their update rule, and their readers.

Sending takes no lock, since values with readers are never written: a step is applied in place without readers, else on
a copy, so a slow reader delays nothing. Everything else happens under the block's lock.
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
"""Creates the update rule for the values of one block at an offset in the flat vector."""


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The values after this many steps. While they have readers, they do not change."""

    steps: int
    values: Array
    readers: int = 0


class Values:
    """The values of one block and their update rule.

    Args:
        values: owned from now on.
        make_rule: creates the update rule.
        start: offset in the flat vector.
    """

    def __init__(self, values: Array, make_rule: MakeRule, *, start: int = 0) -> None:
        self.start = start
        self._values = torch.from_numpy(values)
        self._rule = make_rule(self._values, start)
        self._snapshot = Snapshot(steps=0, values=values)

    @property
    def steps(self) -> int:
        """Number of steps: the version of the values."""
        return self._snapshot.steps

    @property
    def block_bytes(self) -> int:
        """Size in bytes."""
        return self._values.nbytes

    @property
    def tensor(self) -> torch.Tensor:
        """The values as a tensor."""
        return self._values

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The rule's state."""
        return self._rule.state()

    def resume(self, state: Mapping[str, torch.Tensor], steps: int) -> None:
        """Continue from the state of the rule of the same values, after this many steps."""
        self._rule.restore(state)
        self._snapshot = Snapshot(steps=steps, values=self._snapshot.values)

    def borrow(self) -> Snapshot:
        """Borrow the current values; return them with ``give_back``."""
        self._snapshot.readers += 1
        return self._snapshot

    def give_back(self, snapshot: Snapshot) -> None:
        """The reader has finished with a borrowed snapshot."""
        snapshot.readers -= 1

    def squared_norm(self, growing: Sum) -> float:
        """The squared norm of the mean of ``growing``, over trained elements; 0 without samples.

        Raises:
            TypeError: if the rule cannot compute it.
        """
        if not isinstance(self._rule, Clipping):
            raise TypeError(f"{type(self._rule).__name__} does not say the norm of a gradient")
        return self._rule.squared_norm(growing.total, growing.samples) if growing.samples else 0.0

    def apply(self, growing: Sum, *, scale: float = 1.0, norm: float | None = None) -> None:
        """Apply a step with ``growing``, scaled by ``scale``; without samples nothing changes.

        ``norm``: of the mean gradient of all blocks, if the step depends on it.
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
        """If the values have readers, give them a copy; the optimizer keeps its reference to the tensor."""
        if self._snapshot.readers:
            self._values.data = self._values.clone()
