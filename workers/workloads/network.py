"""A torch module trained on a dataset: the workload behind every name whose updates are gradients."""

import math
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Init, Optimizer, Precision
from workers.workloads.arithmetic import arithmetic_of
from workers.workloads.buffers import beside_buffers
from workers.workloads.data.examples import Dataset
from workers.workloads.memory import returned
from workers.workloads.module import Shape, build_bare, seeded
from workers.workloads.objectives import Objective
from workers.workloads.replica import NetworkReplica, NetworkScorer
from workers.workloads.rules import GradientRule
from workers.workloads.shape import Rule, Samples, Vector

MakeRule = Callable[..., Rule]
"""Called as ``GradientRule`` is."""


class Network:
    """``Workload`` of one module and one dataset.

    Args:
        build: creates the module, with its initial values.
        dataset: the data to train on.
        objective: the loss of its outputs.
        l2: weight of half the squared norm of the parameters, as part of every sample's loss.
        make_rule: creates the rule that applies a mean gradient.
        device: where updates are computed.
        init: whether training starts with the module's own values, or with values that only depend on the job's seed.

    Raises:
        SpecError: if a part of the module cannot be trained, or would be returned incorrectly.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        dataset: Dataset,
        objective: Objective,
        *,
        l2: float = 0.0,
        make_rule: MakeRule = GradientRule,
        device: str = "cpu",
        init: Init = "module",
    ) -> None:
        self.build, self.dataset, self.objective, self.l2 = build, dataset, objective, l2
        self._make_rule, self._device = make_rule, torch.device(device)
        self.begins_with: Init = init
        self.precision: Precision = "fp32"
        """The precision of replicas."""
        self._shape = Shape(build_bare(build))
        self.layout = self._shape.layout

    @property
    def sample_count(self) -> int:
        """Samples of the training split."""
        return len(self.dataset.split.train)

    def init(self, seed: int) -> Vector:
        """The module's own values, built with that seed; or values that only depend on the seed.

        With ``init: seed`` weights are uniform within 1 / sqrt(inputs), biases 0, scales of norms 1, each tensor from
        its own stream; untrained tensors are as built.
        """
        vector = np.empty(self.layout.size, dtype=np.float32)
        if self.begins_with == "module" or self.layout.buffers:
            with returned(), seeded(seed):
                self._shape.write(self.build(), vector)
        if self.begins_with == "seed":
            views = self.layout.views(vector)
            for index, (name, shape) in enumerate(self.layout.shapes.items()):
                views[name][...] = _init_tensor(name, shape, seed, index)
        return vector

    def replica(self) -> NetworkReplica:
        """New parameters and gradients, and the dataset."""
        return NetworkReplica(
            self.build,
            self.layout,
            self.dataset,
            self.objective,
            self._device,
            l2=self.l2,
            arithmetic=arithmetic_of(self.precision, self._device, trained=self.layout.edge),
        )

    def scorer(self) -> NetworkScorer:
        """New parameters, and the dataset."""
        return NetworkScorer(self.build, self.layout, self.dataset, self.objective, self._device)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """Mean gradients drive the optimizer of the spec; buffers change by the mean of their changes."""
        own = self._make_rule(values, optimizer, layout=self.layout, start=start)
        return beside_buffers(own, values, self.layout, start=start)

    def saved(self, parameters: Vector) -> Mapping[str, np.ndarray]:
        """The ``state_dict`` for the module's ``load_state_dict``."""
        return self._shape.state(parameters)

    def labels(self) -> Samples:
        """The classes; regression targets are divided into ten ranges."""
        targets = self.dataset.split.train.targets.numpy()
        if self.dataset.facts.classes:
            return targets.astype(np.int64)
        return (np.argsort(np.argsort(targets)) * 10 // len(targets)).astype(np.int64)

    def writers(self) -> Samples | None:
        """The author of each training sample, if known."""
        return self.dataset.split.writers


def check_fit(name: str, build: Callable[[], nn.Module], dataset: Dataset) -> None:
    """Raise ``SpecError`` unless samples of the dataset fit the module's input; nothing is computed."""
    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            build()(torch.empty(1, *dataset.facts.shape))
    except (RuntimeError, ValueError, ZeroDivisionError) as error:
        shape = " x ".join(map(str, dataset.facts.shape))
        reason = str(error).partition("\n")[0]
        raise SpecError(
            "workload.dataset", dataset.name, f"samples that fit {name}: those of {shape} do not ({reason})"
        ) from None


def _init_tensor(name: str, shape: tuple[int, ...], seed: int, index: int) -> Vector:
    if len(shape) == 1:
        return np.full(shape, 1.0 if name.endswith("weight") else 0.0, dtype=np.float32)
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return np.random.default_rng([seed, index]).uniform(-bound, bound, shape).astype(np.float32)
