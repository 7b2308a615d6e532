"""Update rules: what a server does with a complete sum. Optimisers are torch's, one instance per block.

The optimisers here act on each element by itself, so applying them block by block is the same as on the whole.
"""

from collections.abc import Callable, Mapping

import torch

from controlplane.protocol.spec import Optimizer, SpecError

MakeOptimizer = Callable[[torch.Tensor, Optimizer], torch.optim.Optimizer]

OPTIMIZERS: Mapping[str, MakeOptimizer] = {
    "sgd": lambda values, spec: torch.optim.SGD(
        [values], lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
    ),
}
"""From the name in a job's spec to the optimiser of one block."""


class GradientRule:
    """Gradients add up; their mean is a step of the optimiser."""

    def __init__(self, values: torch.Tensor, optimizer: Optimizer) -> None:
        """Take charge of ``values``.

        Raises:
            SpecError: if there is no optimiser of that name.
        """
        if optimizer.name not in OPTIMIZERS:
            raise SpecError("optimizer.name", optimizer.name, f"one of {', '.join(sorted(OPTIMIZERS))}")
        self._values = values
        self._optimizer = OPTIMIZERS[optimizer.name](values, optimizer)

    def apply(self, total: torch.Tensor, samples: int) -> None:
        """A step along the mean gradient ``total / samples`` (LB-BSP Eq. 7)."""
        self._values.grad = total.div_(samples)
        self._optimizer.step()
