"""Models as shapes of their tensors and a function from parameters and features to logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody reads

from workers.workloads.datasets import Dataset

Parameters = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A classifier of images."""

    name: str
    summary: str
    shapes: Callable[[Dataset], dict[str, tuple[int, ...]]]
    """The tensors for a data set, in order: ``*.weight`` (outputs first) and ``*.bias``."""
    logits: Callable[[Parameters, torch.Tensor, Dataset], torch.Tensor]
    """(samples, features) to (samples, classes)."""


def _softmax_shapes(dataset: Dataset) -> dict[str, tuple[int, ...]]:
    return {"linear.weight": (dataset.classes, dataset.features), "linear.bias": (dataset.classes,)}


def _softmax_logits(parameters: Parameters, features: torch.Tensor, dataset: Dataset) -> torch.Tensor:
    return F.linear(features, parameters["linear.weight"], parameters["linear.bias"])


def _cnn_shapes(dataset: Dataset) -> dict[str, tuple[int, ...]]:
    height, width = dataset.image
    return {
        "conv1.weight": (16, 1, 3, 3),
        "conv1.bias": (16,),
        "conv2.weight": (32, 16, 3, 3),
        "conv2.bias": (32,),
        "linear.weight": (dataset.classes, 32 * (height // 4) * (width // 4)),
        "linear.bias": (dataset.classes,),
    }


def _cnn_logits(parameters: Parameters, features: torch.Tensor, dataset: Dataset) -> torch.Tensor:
    images = features.view(-1, 1, *dataset.image)
    for layer in ("conv1", "conv2"):
        images = F.conv2d(images, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"], padding=1)
        images = F.max_pool2d(F.relu(images), 2)
    return F.linear(images.flatten(1), parameters["linear.weight"], parameters["linear.bias"])


SOFTMAX_REGRESSION = Model(
    name="softmax-regression",
    summary="one linear layer with softmax",
    shapes=_softmax_shapes,
    logits=_softmax_logits,
)
CNN = Model(
    name="cnn",
    summary="two convolutions of 16 and 32 channels with pooling, one linear layer; no batch norm",
    shapes=_cnn_shapes,
    logits=_cnn_logits,
)

MODELS: Mapping[str, Model] = {model.name: model for model in (SOFTMAX_REGRESSION, CNN)}
"""Models by the workload's name in a job's spec."""
