"""Samples in memory: dense rows of one shape, or sparse rows, each with its target."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from workers.workloads.shape import Samples

SPLIT_SEED = 20210
"""The split belongs to the dataset, not to the job: accuracies of different jobs are on the same samples."""

HELD_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """A batch of sparse rows: columns and values of all of them, and the offset of each row."""

    offsets: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor


Inputs = torch.Tensor | Bag


class Examples(Protocol):
    """Samples that are accessed by index."""

    @property
    def targets(self) -> torch.Tensor:
        """A class (int64) or a number (float32) for each sample."""

    def __len__(self) -> int: ...

    def take(self, samples: Samples, device: torch.device) -> tuple[Inputs, torch.Tensor]:
        """Inputs and targets of these samples, on ``device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of one shape (float32)."""

    features: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, samples: Samples, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of these samples, on ``device``."""
        chosen = torch.from_numpy(samples)
        return self.features[chosen].to(device), self.targets[chosen].to(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseTable:
    """Sparse rows: row ``r`` has ``columns[starts[r]:starts[r + 1]]`` and their ``values``."""

    starts: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, samples: Samples, device: torch.device) -> tuple[Bag, torch.Tensor]:
        """Inputs and targets of these samples, on ``device``."""
        chosen = torch.from_numpy(samples)
        lengths = self.starts[chosen + 1] - self.starts[chosen]
        offsets = torch.cumsum(lengths, 0) - lengths
        entries = torch.arange(int(lengths.sum())) + torch.repeat_interleave(self.starts[chosen] - offsets, lengths)
        bag = Bag(
            offsets=offsets.to(device), columns=self.columns[entries].to(device), values=self.values[entries].to(device)
        )
        return bag, self.targets[chosen].to(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Training and held-out samples; ``writers``: the author of each training sample, where known."""

    train: Examples
    held: Examples
    writers: np.ndarray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Properties that determine shapes of parameters."""

    shape: tuple[int, ...]
    """Shape of one sample: features; channels, height and width; or steps and bands."""
    classes: int
    """Number of classes; 0 for regression."""


class Dataset:
    """A dataset with its properties; it is read once, on first use.

    Raises from ``split``: ``DataError``, if files are missing or have another format.
    """

    def __init__(self, name: str, facts: Facts, load: Callable[[], Split]) -> None:
        self.name, self.facts, self._load = name, facts, load

    @cached_property
    def split(self) -> Split:
        """The samples."""
        return self._load()


def divide(features: np.ndarray, targets: np.ndarray, *, writers: np.ndarray | None = None) -> Split:
    """Hold out a seeded fifth of the samples."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(targets))
    held_count = math.ceil(len(targets) * HELD_SHARE)
    train, held = order[: len(order) - held_count], order[len(order) - held_count :]
    return prepared(
        (features[train], targets[train]),
        (features[held], targets[held]),
        writers=None if writers is None else writers[train],
    )


def prepared(
    train: tuple[np.ndarray, np.ndarray], held: tuple[np.ndarray, np.ndarray], *, writers: np.ndarray | None = None
) -> Split:
    """Both parts with features standardized by the training part (mean 0, deviation 1)."""
    mean, deviation = _scales(train[0])
    parts = [table((features - mean) / deviation, targets) for features, targets in (train, held)]
    return Split(train=parts[0], held=parts[1], writers=writers)


def table(features: np.ndarray, targets: np.ndarray) -> Table:
    """Samples as torch tensors: float32, and int64 for classes."""
    kind = np.int64 if np.issubdtype(targets.dtype, np.integer) else np.float32
    rows = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    return Table(features=rows, targets=torch.from_numpy(targets.astype(kind)))


def _scales(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scale of each column if samples are rows of different features; of all pixels together if they are images."""
    axis = 0 if features.ndim == 2 else None
    if not len(features):
        return np.zeros(()), np.ones(())
    exact = features.astype(np.float32) if features.dtype == np.uint8 else features
    deviation = np.asarray(exact.std(axis=axis))
    return np.asarray(exact.mean(axis=axis)), np.where(deviation > 0.0, deviation, 1.0)
