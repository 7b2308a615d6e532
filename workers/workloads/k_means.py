"""K-means: workers sum positions and counts of the samples nearest to each centre, instead of gradients.

The parameters *are* sums and counts; a centre is their quotient. Whole passes are Lloyd's steps; mini-batches decay the
older sums at the stated rate.
"""

from typing import cast

import numpy as np
import torch

from controlplane.protocol.options import KMeansOptions
from controlplane.protocol.training import Optimizer
from workers.workloads.data.examples import Dataset, Examples, Table
from workers.workloads.layout import Layout
from workers.workloads.rules import SumRule
from workers.workloads.shape import Rule, Samples, Score, Update, Vector

SMALLEST_COUNT = 1e-6


class KMeans:
    """``Workload`` of a number of centres and a dataset; the loss is half the squared distance to the nearest."""

    def __init__(self, dataset: Dataset, options: KMeansOptions) -> None:
        self.dataset, self.options = dataset, options
        features = int(np.prod(dataset.facts.shape))
        self.layout = Layout.of({"sums": (options.clusters, features), "counts": (options.clusters,)})

    @property
    def sample_count(self) -> int:
        """Samples of the training split."""
        return len(self.dataset.split.train)

    def init(self, seed: int) -> Vector:
        """Each centre is a sample, far from the previous ones (k-means++); reads the data, on servers too."""
        rng = np.random.default_rng(seed)
        rows = _rows(self.dataset.split.train).numpy()
        chosen = [int(rng.integers(len(rows)))]
        distances = ((rows - rows[chosen[0]]) ** 2).sum(axis=1)
        while len(chosen) < self.options.clusters:
            total = distances.sum()
            odds = distances / total if total > 0.0 else None
            chosen.append(int(rng.choice(len(rows), p=odds)))
            distances = np.minimum(distances, ((rows - rows[chosen[-1]]) ** 2).sum(axis=1))
        return np.concatenate([rows[chosen].ravel(), np.ones(len(chosen), dtype=np.float32)])

    def replica(self) -> "KMeansReplica":
        """New sums and counts, and the dataset."""
        return KMeansReplica(self.dataset, self.options.clusters)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """Sums replace sums; the optimizer is not used."""
        return SumRule(values, memory=self.options.memory)

    def labels(self) -> Samples:
        """The classes, which clusters do not use."""
        return self.dataset.split.train.targets.numpy().astype(np.int64)

    def writers(self) -> Samples | None:
        """The author of each training sample, if known."""
        return self.dataset.split.writers


class KMeansReplica:
    """``Replica`` of k-means."""

    def __init__(self, dataset: Dataset, clusters: int) -> None:
        self._data, self._clusters = dataset.split, clusters
        features = int(np.prod(dataset.facts.shape))
        self.parameters: Vector = np.zeros(clusters * (features + 1), dtype=np.float32)
        self.gradient: Vector = np.zeros(clusters * (features + 1), dtype=np.float32)
        self._edge = clusters * features

    def update(self, samples: Samples) -> Update:
        """Sums and counts of the samples nearest to each centre."""
        rows = _rows(self._data.train)[torch.from_numpy(samples)]
        nearest, distances = self._assign(rows)
        sums, counts = self._split(self.gradient)
        sums.zero_().index_add_(0, nearest, rows)
        counts.copy_(torch.bincount(nearest, minlength=self._clusters))
        return Update(loss_sum=0.5 * distances.sum().item(), samples=len(samples))

    def evaluate(self) -> Score:
        """Half the mean squared distance of held-out samples to their centres."""
        _, distances = self._assign(_rows(self._data.held))
        return Score(loss=0.5 * distances.mean().item(), accuracy=None, samples=len(distances))

    def _assign(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each row's nearest centre, and the squared distance to it; a centre may have no samples."""
        sums, counts = self._split(self.parameters)
        centres = sums / counts.clamp(min=SMALLEST_COUNT)[:, None]
        squares = torch.cdist(rows, centres).square()
        squares[:, counts < SMALLEST_COUNT] = torch.inf
        found = squares.min(dim=1)
        return found.indices, found.values

    def _split(self, vector: Vector) -> tuple[torch.Tensor, torch.Tensor]:
        whole = torch.from_numpy(vector)
        return whole[: self._edge].view(self._clusters, -1), whole[self._edge :]


def _rows(examples: Examples) -> torch.Tensor:
    return cast(Table, examples).features.flatten(1)
