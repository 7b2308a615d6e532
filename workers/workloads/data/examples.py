"""Samples in memory: rows of one shape, or sparse rows, each with its target."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from workers.workloads.shape import Samples

SPLIT_SEED = 20210
"""The split is part of the data set, not of the job: accuracies of different jobs are on the same samples."""

HELD_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """Some sparse rows: the columns and values of all of them, and where each row begins."""

    offsets: torch.Tensor
    columns: torch.Tensor
    values: torch.Tensor


Inputs = torch.Tensor | Bag


class Examples(Protocol):
    """Samples that can be taken by index."""

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
    """Facts that shapes of parameters depend on."""

    shape: tuple[int, ...]
    """Of one sample: features; channels, height and width; steps and bands."""
    classes: int
    """0 where a number should be predicted."""


class Dataset:
    """A data set by its facts; it is read on first use, once.

    Raises from ``split``: ``DataError``, where files are missing or not what they are called.
    """

    def __init__(self, name: str, facts: Facts, load: Callable[[], Split]) -> None:
        self.name, self.facts, self._load = name, facts, load

    @cached_property
    def split(self) -> Split:
        """Its samples."""
        return self._load()


def divide(features: np.ndarray, targets: np.ndarray, *, writers: np.ndarray | None = None) -> Split:
    """A seeded fifth of the samples is held out."""
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
    """Both parts with features brought to mean 0 and deviation 1 of the training part."""
    mean, deviation = _scales(train[0])
    parts = [table((features - mean) / deviation, targets) for features, targets in (train, held)]
    return Split(train=parts[0], held=parts[1], writers=writers)


def table(features: np.ndarray, targets: np.ndarray) -> Table:
    """Samples as torch has them: float32, and int64 for classes."""
    kind = np.int64 if np.issubdtype(targets.dtype, np.integer) else np.float32
    rows = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    return Table(features=rows, targets=torch.from_numpy(targets.astype(kind)))


def _scales(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each column where samples are rows of unlike things; of all pixels together where they are images."""
    axis = 0 if features.ndim == 2 else None
    if not len(features):
        return np.zeros(()), np.ones(())
    exact = features.astype(np.float32) if features.dtype == np.uint8 else features
    deviation = np.asarray(exact.std(axis=axis))
    return np.asarray(exact.mean(axis=axis)), np.where(deviation > 0.0, deviation, 1.0)
