"""The parameters where every worker holds them all and makes each step itself, in step with the others."""

from collections.abc import Callable, Mapping

import torch

from controlplane.protocol.spec import JobSpec
from workers.workloads.shape import Rule, Vector, Workload
from workers.workloads.trained import check_clip


class Held:
    """One worker's, with the rule that changes them.

    Args:
        on_step: told after each step.
    """

    def __init__(
        self, workload: Workload, spec: JobSpec, on_step: Callable[["Held"], None] = lambda held: None
    ) -> None:
        self.values = torch.from_numpy(workload.init(spec.seed))
        self.rule: Rule = workload.rule(self.values, spec.applied, start=0)
        check_clip(self.rule, spec.applied)
        self.version = 0
        """How many iterations are in them."""
        self._on_step = on_step

    def step(self, total: torch.Tensor, count: int) -> None:
        """The next version, by a sum that stands for ``count`` samples; for none of them the values stay."""
        if count:
            self.rule.apply(total, count)
        self.version += 1
        self._on_step(self)

    def adopt(self, values: torch.Tensor | Vector, state: Mapping[str, torch.Tensor], version: int) -> None:
        """Go on from there."""
        self.values.copy_(torch.as_tensor(values))
        self.rule.restore(state)
        self.version = version

    def live_in(self, memory: Vector) -> None:
        """Keep the values in ``memory`` from now on."""
        memory[:] = self.values.numpy()
        self.values.data = torch.from_numpy(memory)
