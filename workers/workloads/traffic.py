"""The parameters of large networks without their computation, to test placements and links.

The gradient is that of half the squared norm of the parameters, so the loss decreases and any division of the samples
has the same total; it costs only the memory traffic.
"""

from collections.abc import Mapping

import numpy as np
import torch

from controlplane.protocol.training import Optimizer
from workers.workloads.layout import Layout
from workers.workloads.rules import GradientRule
from workers.workloads.shape import Rule, Samples, Score, Update, Vector


class Traffic:
    """``Workload`` of tensors without data; ``scale``: the fraction of each one's elements that is kept."""

    def __init__(self, tensors: Mapping[str, int], *, scale: float, samples: int) -> None:
        self.layout = Layout.of({name: (max(1, round(size * scale)),) for name, size in tensors.items()})
        self.sample_count = samples

    @property
    def size(self) -> int:
        """Elements of all tensors."""
        return self.layout.size

    def init(self, seed: int) -> Vector:
        """Uniform between -1 and 1."""
        return np.random.default_rng(seed).random(self.size, dtype=np.float32) * 2.0 - 1.0

    def replica(self) -> "TrafficReplica":
        """New parameters and gradients."""
        return TrafficReplica(self.size)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """Mean gradients drive the optimizer of the spec."""
        return GradientRule(values, optimizer, layout=self.layout, start=start)

    def labels(self) -> Samples:
        """Ten classes in turn."""
        return np.arange(self.sample_count, dtype=np.int64) % 10

    def writers(self) -> Samples | None:
        """No writers."""
        return None


class TrafficReplica:
    """``Replica`` without data."""

    def __init__(self, size: int) -> None:
        self.parameters: Vector = np.zeros(size, dtype=np.float32)
        self.gradient: Vector = np.zeros(size, dtype=np.float32)

    def update(self, samples: Samples) -> Update:
        """The parameters times the number of samples."""
        np.multiply(self.parameters, np.float32(len(samples)), out=self.gradient)
        return Update(loss_sum=self._loss() * len(samples), samples=len(samples))

    def evaluate(self) -> Score:
        """Half the mean square of the parameters."""
        return Score(loss=self._loss(), accuracy=None, samples=1)

    def _loss(self) -> float:
        return 0.5 * float(np.dot(self.parameters, self.parameters)) / len(self.parameters)
