"""The common interface of all workloads for trainer and server.

Parameters are one flat float32 vector with the workload's tensors one after another. A worker computes *sums* over its
samples, never means, so that any division of the samples over workers has the same total (LB-BSP Eq. 7). The workload
defines the summed values: gradients in most, sums and counts in k-means, normal equations in least squares.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from controlplane.protocol.training import Optimizer
from workers.workloads.layout import Layout

Vector = npt.NDArray[np.float32]
Samples = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One worker's result over its samples; the sum itself is ``Replica.gradient``."""

    loss_sum: float
    samples: int

    @property
    def loss(self) -> float:
        """Mean over the samples; 0.0 over none."""
        return self.loss_sum / self.samples if self.samples else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The quality of parameters on the held-out split."""

    loss: float
    accuracy: float | None
    samples: int


class Replica(Protocol):
    """One copy of the parameters with the memory to work on it; used by one thread at a time."""

    parameters: Vector
    """Written by the owner, read by the methods."""
    gradient: Vector
    """The sum of the last ``update``, of the size of the parameters."""

    def update(self, samples: Samples) -> Update:
        """Compute ``gradient`` over the training samples with these indices; an empty list is
        allowed and gives zeros.
        """

    def evaluate(self) -> Score:
        """Score ``parameters`` on the held-out split."""


class Scorer(Protocol):
    """Memory for parameters that are only scored."""

    parameters: Vector
    """Written by the owner."""

    def evaluate(self) -> Score:
        """Score ``parameters`` on the held-out split."""


@runtime_checkable
class Scoring(Protocol):
    """A workload whose parameters can be evaluated without the memory for training."""

    def scorer(self) -> Scorer:
        """New memory for evaluation; reads the data."""


@runtime_checkable
class Saving(Protocol):
    """A workload whose models are saved in their own form."""

    def saved(self, parameters: Vector) -> Mapping[str, np.ndarray]:
        """The model as named arrays, in its own types."""


OnFinal = Callable[[int], None]
"""Called with the element from which on the gradient of the current update is final."""


@runtime_checkable
class ReportsProgress(Protocol):
    """A replica that reports final gradients while it computes."""

    def report_progress(self, on_final: OnFinal) -> None:
        """Call ``on_final`` during every ``update`` from now on, on its thread, unless its loss is not a number."""


@runtime_checkable
class Prefetching(Protocol):
    """A replica that can prefetch samples while it computes."""

    def prefetch(self, batches: Sequence[Samples]) -> None:
        """Start loading the samples of the next updates, batch by batch; other updates remain possible."""


def loading_s_of(replica: object) -> float | None:
    """How long a replica has waited for samples in all its updates, from ``loading_s``; None if it does not report
    that.
    """
    loading_s: float | None = getattr(replica, "loading_s", None)
    return loading_s


class Rule(Protocol):
    """The update of one block from a complete sum, by the block's owner.

    It changes each element separately, so applying it block by block equals applying it to the whole vector.
    """

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0) -> None:
        """Change the values by ``total``, which is over ``samples`` > 0; ``total`` may be overwritten.

        The step is ``scale`` times as long as usual: updates of n workers that are applied one by one, as they arrive,
        make 1/n of a step each.
        """

    def state(self) -> dict[str, torch.Tensor]:
        """All state except the values that the next steps depend on, by name; views, to be copied immediately."""

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from the result of ``state``, of this block or the same one on another server."""


@runtime_checkable
class Clipping(Protocol):
    """A rule whose steps may depend on the norm of the gradient of all parameters, of which it has a part."""

    def squared_norm(self, total: torch.Tensor, samples: int) -> float:
        """Squared norm of the mean gradient ``total / samples``, over its part of the parameters."""

    def apply(self, total: torch.Tensor, samples: int, scale: float = 1.0, *, norm: float | None = None) -> None:
        """As ``Rule.apply``; ``norm``: of the mean gradient of all parameters; None: it has all of them."""


class Workload(Protocol):
    """A model and its dataset."""

    layout: Layout
    """The layout of the flat vector."""

    @property
    def sample_count(self) -> int:
        """Samples of the training split; reads the data."""

    def init(self, seed: int) -> Vector:
        """Version 0 of the parameters: the same for the same seed, on every machine."""

    def replica(self) -> Replica:
        """New memory for training or evaluation; reads the data."""

    def rule(self, values: torch.Tensor, optimizer: Optimizer, *, start: int = 0) -> Rule:
        """The update rule for one block, with its state; it changes ``values`` in place.

        ``start``: offset of the block in the flat vector.
        """

    def labels(self) -> Samples:
        """A class for each training sample, by which samples are divided among clients; reads the data."""

    def writers(self) -> Samples | None:
        """The author of each training sample, if known; reads the data."""


def named_arrays(workload: Workload, parameters: Vector) -> Mapping[str, np.ndarray]:
    """The parameters as named arrays, the format of saved models; views of ``parameters`` if possible."""
    return workload.saved(parameters) if isinstance(workload, Saving) else workload.layout.views(parameters)


def checksum(vector: Vector) -> str:
    """A fingerprint of the parameters."""
    return f"{zlib.crc32(vector.data.cast('B')):08x}"


def scorer_of(workload: Workload) -> Scorer:
    """Memory for evaluating versions, as little as the workload needs."""
    return workload.scorer() if isinstance(workload, Scoring) else workload.replica()
