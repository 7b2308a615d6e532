"""The parameters of an all-reduce job: every worker holds all of them and applies each step itself."""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from controlplane.protocol.spec import JobSpec
from workers.workloads.shape import Rule, Vector, Workload
from workers.workloads.trained import check_clip


class LocalParameters:
    """One worker's parameters and update rule.

    Args:
        on_step: called after each step.
    """

    def __init__(
        self, workload: Workload, spec: JobSpec, on_step: Callable[["LocalParameters"], None] = lambda held: None
    ) -> None:
        self.values = torch.from_numpy(workload.init(spec.seed))
        self._make_rule: Callable[[torch.Tensor], Rule] = partial(workload.rule, optimizer=spec.applied, start=0)
        self.rule = self._make_rule(self.values)
        check_clip(self.rule, spec.applied)
        self.version = 0
        """Number of iterations that they include."""
        self._on_step = on_step

    def step(self, total: torch.Tensor, count: int) -> None:
        """Apply a sum over ``count`` samples; with 0 samples the values do not change."""
        if count:
            self.rule.apply(total, count)
        self.version += 1
        self._on_step(self)

    def adopt(self, values: torch.Tensor | Vector, state: Mapping[str, torch.Tensor], version: int) -> None:
        """Replace the values and the rule's state by those of ``version``."""
        self.values.copy_(torch.as_tensor(values))
        self.rule.restore(state)
        self.version = version

    def live_in(self, memory: torch.Tensor) -> None:
        """Store the values in ``memory`` from now on, and the rule's state on the same device."""
        memory.copy_(self.values)
        if memory.device == self.values.device:
            self.values.data = memory
            return
        state, self.values = self.rule.state(), memory
        self.rule = self._make_rule(memory)
        if self.version:
            self.rule.restore(state)
