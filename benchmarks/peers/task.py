"""The common task: handwritten digits, a small convolutional network, plain SGD, 64 samples per rank.

``examples/train.py`` has batch norm, whose statistics depend on how a batch is divided; here it is group norm, so that
shares of any size compute the same gradient.
"""

from collections.abc import Callable
from typing import Final

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

WORLD: Final = 4
BATCH: Final = 64
RATE: Final = 0.02
SEED: Final = 7
EPOCHS: Final = 10_000
"""An upper bound: the benchmark ends a script once the target is reached."""

SCORE_EVERY: Final = 5
"""Iterations between two evaluations by the first rank, by default."""


def digits() -> tuple[TensorDataset, TensorDataset]:
    """1,437 images to train on, 360 to test with."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    train, test = train_test_split(range(len(images)), test_size=360, random_state=SEED, stratify=labels)
    labels = torch.tensor(labels)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network() -> nn.Module:
    """The network, with the same initial values at each rank."""
    torch.manual_seed(SEED)
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    )


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """The common optimizer."""
    return torch.optim.SGD(model.parameters(), lr=RATE)


criterion: Final[Callable[..., torch.Tensor]] = nn.CrossEntropyLoss()


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """The fraction of test images that the model classifies correctly."""
    images, labels = test.tensors
    found: float = model(images).argmax(1).eq(labels).float().mean().item()
    return found
