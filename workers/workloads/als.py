"""Matrix factorization by alternating least squares: workers sum normal equations of the items instead of gradients.

A sample is a user. From the items' factors a worker solves for each of its users exactly, and sums what those users say
about the items: for item j the matrix A_j = sum of u u', the vector b_j = sum of rating times u, and the count. The
parameters *are* these sums; an item's factors solve (A_j + l2 n_j I) v = b_j, so one pass over all users is one
alternation, and smaller batches of users forget the older sums at the stated rate.
"""

from typing import cast

import numpy as np
import torch

from controlplane.protocol.options import AlsOptions
from controlplane.protocol.training import Optimizer
from workers.workloads.data.examples import Dataset, SparseTable
from workers.workloads.layout import Layout
from workers.workloads.rules import SumRule
from workers.workloads.shape import Rule, Samples, Score, Update, Vector


class Als:
    """``Workload`` of a number of factors and a table of ratings; the loss is half the squared error of a rating."""

    def __init__(self, dataset: Dataset, options: AlsOptions) -> None:
        self.dataset, self.options = dataset, options
        items, rank = dataset.facts.shape[0], options.rank
        self.layout = Layout.of({"matrices": (items, rank, rank), "vectors": (items, rank), "counts": (items,)})

    @property
    def sample_count(self) -> int:
        """Users."""
        return len(self.dataset.split.train)

    def init(self, seed: int) -> Vector:
        """As if each item had been rated once, with small random factors."""
        items, rank = self.dataset.facts.shape[0], self.options.rank
        factors = np.random.default_rng(seed).normal(scale=1.0 / np.sqrt(rank), size=(items, rank)) + 1.0
        matrices = np.broadcast_to(np.eye(rank), (items, rank, rank))
        return np.concatenate([matrices.ravel(), factors.ravel(), np.ones(items)]).astype(np.float32)

    def replica(self) -> "AlsReplica":
        """New sums, and the ratings."""
        return AlsReplica(self.dataset, self.options)

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """Sums replace sums; the optimizer is not used."""
        return SumRule(values, memory=self.options.memory)

    def labels(self) -> Samples:
        """Each user's most usual rating."""
        table = cast(SparseTable, self.dataset.split.train)
        means = torch.segment_reduce(table.values, "mean", lengths=table.starts.diff())
        return np.asarray(means.nan_to_num(3.0).round().numpy(), dtype=np.int64)

    def writers(self) -> Samples | None:
        """Every user is a sample."""
        return None


class AlsReplica:
    """``Replica`` of matrix factorisation."""

    def __init__(self, dataset: Dataset, options: AlsOptions) -> None:
        self._items, self._rank, self._l2 = dataset.facts.shape[0], options.rank, options.l2
        self._train = cast(SparseTable, dataset.split.train)
        self._held = cast(SparseTable, dataset.split.held)
        size = self._items * (self._rank * self._rank + self._rank + 1)
        self.parameters: Vector = np.zeros(size, dtype=np.float32)
        self.gradient: Vector = np.zeros(size, dtype=np.float32)

    def update(self, samples: Samples) -> Update:
        """These users' contribution for the items they rated; the loss is that of their training ratings, per user."""
        users, items, ratings = _entries(self._train, samples)
        factors = self._item_factors()
        solved = self._solve_users(len(samples), users, factors[items], ratings)
        theirs = solved[users]
        matrices, vectors, counts = self._split(self.gradient)
        matrices.zero_().index_add_(0, items, theirs[:, :, None] * theirs[:, None, :])
        vectors.zero_().index_add_(0, items, ratings[:, None] * theirs)
        counts.zero_().index_add_(0, items, torch.ones_like(ratings))
        errors = ratings - (theirs * factors[items]).sum(1)
        per_user = torch.zeros(len(samples)).index_add_(0, users, 0.5 * errors.square())
        rated = torch.bincount(users, minlength=len(samples)).clamp(min=1)
        return Update(loss_sum=(per_user / rated).sum().item(), samples=len(samples))

    def evaluate(self) -> Score:
        """Half the mean squared error of held-out ratings, with users solved from their training ratings."""
        everyone = np.arange(len(self._train))
        users, items, ratings = _entries(self._train, everyone)
        factors = self._item_factors()
        solved = self._solve_users(len(everyone), users, factors[items], ratings)
        users, items, ratings = _entries(self._held, everyone)
        errors = ratings - (solved[users] * factors[items]).sum(1)
        return Score(loss=0.5 * errors.square().mean().item(), accuracy=None, samples=len(ratings))

    def _item_factors(self) -> torch.Tensor:
        matrices, vectors, counts = self._split(self.parameters)
        return self._solve(matrices, vectors, counts)

    def _solve_users(
        self, count: int, users: torch.Tensor, factors: torch.Tensor, ratings: torch.Tensor
    ) -> torch.Tensor:
        rank = self._rank
        matrices = torch.zeros(count, rank, rank).index_add_(0, users, factors[:, :, None] * factors[:, None, :])
        vectors = torch.zeros(count, rank).index_add_(0, users, ratings[:, None] * factors)
        return self._solve(matrices, vectors, torch.bincount(users, minlength=count))

    def _solve(self, matrices: torch.Tensor, vectors: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Solve the ridge problem of each; a row without ratings gets zeros."""
        penalties = self._l2 * counts.clamp(min=1e-3)
        ridges = matrices + penalties[:, None, None] * torch.eye(self._rank)
        solution: torch.Tensor = torch.linalg.solve(ridges, vectors)
        return solution

    def _split(self, vector: Vector) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        items, rank = self._items, self._rank
        whole, first, second = torch.from_numpy(vector), items * rank * rank, items * rank * (rank + 1)
        return whole[:first].view(items, rank, rank), whole[first:second].view(items, rank), whole[second:]


def _entries(table: SparseTable, samples: Samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For every rating of these users: the index of the user, the item, and the rating."""
    bag, _ = table.take(samples, torch.device("cpu"))
    lengths = torch.diff(bag.offsets, append=torch.tensor([len(bag.columns)]))
    return torch.repeat_interleave(torch.arange(len(samples)), lengths), bag.columns, bag.values
