"""A model trained on a data set with cross-entropy: the workload behind every name of the catalogue so far."""

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody reads

from controlplane.protocol.spec import Optimizer
from workers.workloads.datasets import Dataset, Split
from workers.workloads.models import Model
from workers.workloads.rules import GradientRule
from workers.workloads.shape import Rule, Samples, Score, Update, Vector


class Classifier:
    """``Workload`` of one model and one data set."""

    def __init__(self, model: Model, dataset: Dataset) -> None:
        self.model, self.dataset = model, dataset
        self.shapes: Mapping[str, tuple[int, ...]] = model.shapes(dataset)
        self.sample_count = dataset.train_samples

    def init(self, seed: int) -> Vector:
        """Weights uniform within 1 / sqrt(inputs), biases zero; each tensor from a stream of its own."""
        tensors = [_init_tensor(shape, seed, index) for index, shape in enumerate(self.shapes.values())]
        return np.concatenate([tensor.ravel() for tensor in tensors])

    def replica(self) -> "ClassifierReplica":
        """New parameters and gradients, and the data set."""
        return ClassifierReplica(self.model, self.dataset, self.shapes)

    def rule(self, values: torch.Tensor, optimizer: Optimizer) -> Rule:
        """Mean gradients drive the optimiser of the spec."""
        return GradientRule(values, optimizer)


class ClassifierReplica:
    """``Replica`` whose tensors are views of two flat vectors: what is pulled is used where it lies."""

    def __init__(self, model: Model, dataset: Dataset, shapes: Mapping[str, tuple[int, ...]]) -> None:
        size = sum(math.prod(shape) for shape in shapes.values())
        self.parameters: Vector = np.zeros(size, dtype=np.float32)
        self.gradient: Vector = np.zeros(size, dtype=np.float32)
        self._model, self._dataset = model, dataset
        self._data: Split = dataset.load()
        self._tensors = _views(self.parameters, shapes)
        for name, gradient in _views(self.gradient, shapes).items():
            self._tensors[name].requires_grad_()
            self._tensors[name].grad = gradient

    def update(self, samples: Samples) -> Update:
        """Sum of the gradients of the cross-entropy over ``samples``."""
        self.gradient.fill(0.0)
        if not len(samples):
            return Update(loss_sum=0.0, samples=0)
        chosen = torch.from_numpy(samples)
        logits = self._model.logits(self._tensors, self._data.train_features[chosen], self._dataset)
        loss = F.cross_entropy(logits, self._data.train_labels[chosen], reduction="sum")
        loss.backward()  # type: ignore[no-untyped-call]  # adds in place to the views of self.gradient
        return Update(loss_sum=loss.item(), samples=len(samples))

    @torch.no_grad()
    def evaluate(self) -> Score:
        """Mean cross-entropy and accuracy on the held-out split."""
        labels = self._data.held_labels
        logits = self._model.logits(self._tensors, self._data.held_features, self._dataset)
        loss = F.cross_entropy(logits, labels).item()
        right = int((logits.argmax(1) == labels).sum())
        return Score(loss=loss, accuracy=right / len(labels), samples=len(labels))


def _init_tensor(shape: tuple[int, ...], seed: int, index: int) -> Vector:
    if len(shape) == 1:
        return np.zeros(shape, dtype=np.float32)
    bound = 1.0 / math.sqrt(math.prod(shape[1:]))
    return np.random.default_rng([seed, index]).uniform(-bound, bound, shape).astype(np.float32)


def _views(flat: Vector, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    whole, start, views = torch.from_numpy(flat), 0, {}
    for name, shape in shapes.items():
        size = math.prod(shape)
        views[name] = whole[start : start + size].view(shape)
        start += size
    return views
