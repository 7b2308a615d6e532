"""Update rules: what a complete sum does to the values. Optimisers are torch's, one instance per block.

Every rule acts on each element by itself, so applying it block by block is the same as on the whole.
"""

from collections.abc import Callable, Mapping

import torch

from controlplane.protocol.catalogue import check_optimizer
from controlplane.protocol.training import Optimizer
from workers.workloads.schedules import factor

MakeOptimizer = Callable[[torch.Tensor, Optimizer], torch.optim.Optimizer]

OPTIMIZERS: Mapping[str, MakeOptimizer] = {
    "sgd": lambda values, spec: torch.optim.SGD(
        [values], lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay
    ),
    "adam": lambda values, spec: torch.optim.Adam(
        [values],
        lr=spec.lr,
        betas=(spec.beta1, spec.beta2),
        eps=spec.epsilon,
        weight_decay=spec.weight_decay,
        fused=True,
    ),
    "adagrad": lambda values, spec: torch.optim.Adagrad(
        [values], lr=spec.lr, eps=spec.epsilon, weight_decay=spec.weight_decay, fused=True
    ),
}
"""From the name in a job's spec to the optimiser of one block. Fused: one pass over the block's memory instead of one
for each operation, which is 15 times faster for Adam on 4 MiB; plain SGD is one pass already."""

STEPS = "steps"


class GradientRule:
    """Gradients add up; their mean is a step of the optimiser, at the rate that the schedule gives for this step."""

    def __init__(self, values: torch.Tensor, optimizer: Optimizer) -> None:
        """Take charge of ``values``.

        Raises:
            SpecError: if there is no such optimiser.
        """
        check_optimizer(optimizer)
        self._values, self._spec = values, optimizer
        self._optimizer = OPTIMIZERS[optimizer.name](values, optimizer)
        self._is_linear = optimizer.name == "sgd" and not optimizer.momentum and not optimizer.weight_decay
        self._steps = 0

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self._spec.lr * factor(self._spec.schedule, self._steps)

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """A step along the mean gradient ``total / samples`` (LB-BSP Eq. 7), at ``scale`` times the learning rate.

        The rate and not the gradient: to some optimisers the length of a gradient means nothing. Where the step is
        nothing but rate times gradient, the rate is divided too, which saves a pass over the gradient.
        """
        rate = self.rate * scale
        self._optimizer.param_groups[0]["lr"] = rate / samples if self._is_linear else rate
        self._values.grad = total if self._is_linear else total.div_(samples)
        self._optimizer.step()
        self._steps += 1

    def state(self) -> dict[str, torch.Tensor]:
        """The optimiser's tensors, and how many steps were made."""
        held = {name: value for name, value in self._state.items() if isinstance(value, torch.Tensor)}
        return {**held, STEPS: torch.tensor(self._steps)}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copies of the tensors; the values themselves are not touched."""
        self._steps = int(state[STEPS])
        for name, value in state.items():
            if name != STEPS:
                self._state[name] = value.clone()

    @property
    def _state(self) -> dict[str, object]:
        state: dict[str, object] = self._optimizer.state[self._values]
        return state


class ProximalRule(GradientRule):
    """A gradient step, and then every value is drawn towards zero by rate times ``l1`` (ISTA): exact zeros appear."""

    def __init__(self, values: torch.Tensor, optimizer: Optimizer, *, l1: float) -> None:
        super().__init__(values, optimizer)
        self._l1 = l1

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """A step along the mean gradient, and the proximal step of the absolute penalty."""
        threshold = self.rate * scale * self._l1
        super().apply(total, samples, scale)
        self._values.copy_(torch.nn.functional.softshrink(self._values, threshold))


class MeanRule:
    """The mean gradient replaces the values: for servers that only add up. No optimiser."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """The values are the mean ``total / samples`` from now on."""
        self._values.copy_(total.div_(samples))

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing beside the values."""
        return {}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing to restore."""


class SumRule:
    """Sums replace the values, which are sums themselves; ``memory`` of the older ones stays. No optimiser."""

    def __init__(self, values: torch.Tensor, *, memory: float) -> None:
        self._values, self._memory = values, memory

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """``values = memory * values + total``; a part of a step forgets as much less."""
        self._values.mul_(self._memory**scale).add_(total)

    def state(self) -> dict[str, torch.Tensor]:
        """Nothing beside the values."""
        return {}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing to restore."""
