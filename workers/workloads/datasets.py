"""Data sets, split once and for all into training and held-out samples.

Their sizes are known without loading them, so that a server, which needs only shapes, never does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

SPLIT_SEED = 20210
"""The split is part of the data set, not of the job: accuracies of different jobs are on the same samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Features (float32, normalised) and labels (int64) of both splits."""

    train_features: torch.Tensor
    train_labels: torch.Tensor
    held_features: torch.Tensor
    held_labels: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A data set by its sizes; ``load`` reads it once per process."""

    name: str
    summary: str
    image: tuple[int, int]
    """Height and width; a sample's features are an image in one row."""
    classes: int
    train_samples: int
    held_samples: int
    load: Callable[[], Split]

    @property
    def features(self) -> int:
        """Features per sample."""
        return self.image[0] * self.image[1]


@cache
def _load_digits() -> Split:
    """Scikit-learn's handwritten digits: pixels brought to mean 0 and deviation 1 of the training split."""
    from sklearn.datasets import load_digits  # a second and a half: only those who read the data pay it

    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    train, held = order[: DIGITS.train_samples], order[DIGITS.train_samples :]
    mean, deviation = features[train].mean(), features[train].std()
    pixels = torch.from_numpy(((features - mean) / deviation).astype(np.float32))
    targets = torch.from_numpy(labels.astype(np.int64))
    return Split(
        train_features=pixels[train],
        train_labels=targets[train],
        held_features=pixels[held],
        held_labels=targets[held],
    )


DIGITS = Dataset(
    name="digits",
    summary="1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn",
    image=(8, 8),
    classes=10,
    train_samples=1437,
    held_samples=360,
    load=_load_digits,
)

DATASETS: Mapping[str, Dataset] = {DIGITS.name: DIGITS}
"""Data sets by the name in a job's spec."""
