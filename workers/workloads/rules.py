"""Update rules: from a complete sum to new values. Optimizers are torch's, over views of a block.

Most rules change each element separately, so applying them block by block equals applying them to the whole vector.
"""

import math
from collections.abc import Mapping

import torch

from controlplane.protocol.optimizers import check_optimizer
from controlplane.protocol.training import Optimizer
from workers.workloads import remembered
from workers.workloads.layout import Layout
from workers.workloads.schedules import factor
from workers.workloads.tensors import numbers
from workers.workloads.trained import Part, build, parts_of

STEPS = "steps"

ROUNDING = 1e-6
"""Tolerance when fractions of steps are added up to whole ones."""

NORM_EPSILON = 1e-6
"""The number that ``torch.nn.utils.clip_grad_norm_`` adds to a norm before dividing by it."""


class GradientRule:
    """Gradients are summed; their mean is a step of the optimizers, with the schedule's learning rate for this step.

    Args:
        layout: of the flat vector; None: there are no groups, and tensors are not distinguished.
        start: offset of ``values`` in it.
    """

    def __init__(
        self, values: torch.Tensor, optimizer: Optimizer, *, layout: Layout | None = None, start: int = 0
    ) -> None:
        """Own ``values`` from now on.

        Raises:
            SpecError: if there is no such optimizer, or it cannot train these parameters.
        """
        check_optimizer(optimizer)
        self._values, self._spec = values, optimizer
        self._has_all = layout is None or (start == 0 and len(values) >= layout.edge)
        self._trained = [Trained(values, part) for part in parts_of(optimizer, layout, start, len(values))]
        self._optimizers = {
            group: build(
                next(each.part.setting for each in self._trained if each.part.group == group),
                [each.tensor for each in self._trained if each.part.group == group],
            )
            for group in dict.fromkeys(each.part.group for each in self._trained)
        }
        self._rates = {group: float(each.param_groups[0]["lr"]) for group, each in self._optimizers.items()}
        self._is_linear = len(self._trained) == 1 and _is_linear(self._trained[0].part)
        self._steps = 0.0

    def squared_norm(self, total: torch.Tensor, samples: int) -> float:
        """Squared norm of the mean gradient over the parameters in this block; waits for a device once."""
        norms = numbers([torch.linalg.vector_norm(each.part.view(total)) for each in self._trained])
        return math.fsum(norm * norm for norm in norms) / samples**2

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0, *, norm: float | None = None) -> None:
        """Apply a step along the mean gradient ``total / samples`` (LB-BSP Eq. 7), at ``scale`` times the learning
        rate.

        The rate is scaled rather than the gradient, since some optimizers ignore the gradient's length. If a step is
        rate times gradient, the division by ``samples`` is applied to the rate as well, which saves a pass over the
        gradient.

        ``norm``: of the mean gradient of all parameters, if some of them are elsewhere.
        """
        divisor, clip = float(samples), self._spec.clip
        if clip is not None and clip.norm is not None:
            assert norm is not None or self._has_all, "the norm is that of all parameters, and some are elsewhere"
            found = self.squared_norm(total, samples) ** 0.5 if norm is None else norm
            divisor *= max(1.0, (found + NORM_EPSILON) / clip.norm)
        if clip is not None and clip.value is not None:
            total.div_(samples).clamp_(-clip.value, clip.value)
        elif not self._is_linear:
            total.div_(divisor)
        times = scale * factor(self._spec.schedule, int(self._steps + ROUNDING))
        by_rate = divisor if self._is_linear and (clip is None or clip.value is None) else 1.0
        for each in self._trained:
            each.follow(self._values, total)
        for group, optimizer in self._optimizers.items():
            for of_torch in optimizer.param_groups:
                of_torch["lr"] = self._rates[group] * times / by_rate
            optimizer.step()
        self._steps += scale
        self._settle(times)

    def state(self) -> dict[str, torch.Tensor]:
        """The optimizers' tensors, and the number of steps."""
        steps = torch.tensor(self._steps, dtype=torch.float64)
        return {**remembered.gather(self._held(), self._values), STEPS: steps}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore copies of the tensors; the values themselves are not changed."""
        self._steps = float(state[STEPS])
        remembered.spread({name: each for name, each in state.items() if name != STEPS}, self._held(), self._values)

    def _settle(self, times: float) -> None:
        """The values after a step at ``times`` the rates of the spec."""

    def _held(self) -> list[remembered.ParameterState]:
        return [
            remembered.ParameterState(each.part, each.tensor, self._optimizers[each.part.group], self._is_mixed)
            for each in self._trained
        ]

    @property
    def _is_mixed(self) -> bool:
        names = {self._spec.name, *(group.name for group in self._spec.groups if group.name is not None)}
        return len({name.lower() for name in names}) > 1


class Trained:
    """One part of a block as a torch parameter: a tensor that stays the same when the block's memory changes."""

    def __init__(self, values: torch.Tensor, part: Part) -> None:
        self.part = part
        self._is_all = part.shape == values.shape
        self.tensor = values if self._is_all else part.view(values)

    def follow(self, values: torch.Tensor, gradient: torch.Tensor) -> None:
        """Refer to the part in ``values``, which may have moved, and in ``gradient``."""
        if not self._is_all:
            self.tensor.data = self.part.view(values)
        self.tensor.grad = self.part.view(gradient)


def _is_linear(part: Part) -> bool:
    """Whether its step is exactly rate times gradient."""
    options = part.setting.options
    return part.setting.name == "sgd" and not options.get("momentum") and not options.get("weight_decay")


class ProximalRule(GradientRule):
    """A gradient step, then every value is moved towards zero by rate times ``l1`` (ISTA): exact zeros appear."""

    def __init__(
        self, values: torch.Tensor, optimizer: Optimizer, *, l1: float, layout: Layout | None = None, start: int = 0
    ) -> None:
        super().__init__(values, optimizer, layout=layout, start=start)
        self._l1 = l1

    def _settle(self, times: float) -> None:
        """The proximal step of the absolute penalty."""
        for each in self._trained:
            threshold = self._rates[each.part.group] * times * self._l1
            here = each.part.view(self._values)
            here.copy_(torch.nn.functional.softshrink(here, threshold))


class MeanRule:
    """The mean gradient replaces the values: for aggregating servers. No optimizer."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """Set the values to the mean ``total / samples``."""
        self._values.copy_(total.div_(samples))

    def state(self) -> dict[str, torch.Tensor]:
        """Empty: there is no state."""
        return {}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing to restore."""


class SumRule:
    """Sums replace the values, which are sums themselves; a fraction ``memory`` of the older ones is kept. No
    optimizer.
    """

    def __init__(self, values: torch.Tensor, *, memory: float) -> None:
        self._values, self._memory = values, memory

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """``values = memory * values + total``; with ``scale`` below 1 correspondingly less is forgotten."""
        self._values.mul_(self._memory**scale).add_(total)

    def state(self) -> dict[str, torch.Tensor]:
        """Empty: there is no state."""
        return {}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Nothing to restore."""
