"""A scenario's settings for real gradients."""

from typing import Annotated, Literal

from msgspec import Meta

from controlplane.protocol.base import Fraction, Positive
from controlplane.protocol.spec import Part

ProblemName = Literal[
    "logistic-regression",
    "softmax-regression",
    "svm",
    "lasso",
    "ridge",
    "k-means",
    "matrix-factorisation",
    "mlp",
    "cnn",
]

Partition = Literal["shared", "iid", "uneven", "shards", "sorted", "two-shards"]
"""How samples are partitioned. Either all workers draw from one seeded permutation, or each has its own part: random;
random, but sorted by label within the part; two shards sorted by label, as in PSP 6.1; a contiguous range of the data
sorted by label; or two shards as in a job with ``partition: two-shards``.
"""

Dataset = Literal["generated", "digits", "digits-of-jobs"]
"""The data: generated for each data seed; scikit-learn's digits, shuffled for each data seed; or the digits as in live
jobs: the same held-out samples, standardized, with the initial values of ``init: seed``.
"""


class Optimizer(Part, frozen=True, kw_only=True):
    """The optimizer of the servers."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Meta(gt=0.0)] = 0.1
    momentum: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0


class Target(Part, frozen=True, kw_only=True):
    """When the job has converged: held-out loss at most, or accuracy at least this value, at an evaluation."""

    loss: float | None = None
    accuracy: Fraction | None = None


class Federated(Part, frozen=True, kw_only=True):
    """Rounds of local steps, after which each client sends its change of the parameters (FedAvg, LB-BSP 3.5)."""

    local_steps: Positive = 20
    """Tau."""
    scales: Literal["batch", "steps", "rate"] = "batch"
    """What a client's share scales: the batch size; the number of steps; or the batch size and the learning rate (Fig.
    13).
    """
    weights: Literal["equal", "samples"] = "equal"
    """Weights of the clients in the mean: equal, or by processed samples (ruling 10)."""


class Numerics(Part, frozen=True, kw_only=True):
    """A model, its data and its optimizer."""

    problem: ProblemName
    dataset: Dataset = "generated"
    samples: Positive = 4000
    held_out: Positive = 1000
    features: Positive = 20
    classes: Positive = 2
    """Number of labels; clusters of k-means; rank of a factorization."""
    hidden: Positive = 16
    """Hidden units of the MLP and the CNN."""
    density: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Fraction of a generated sample's features that are not zero."""
    separation: Annotated[float, Meta(gt=0.0)] = 2.0
    """Distance of the classes' means, in standard deviations."""
    noise: Annotated[float, Meta(ge=0.0)] = 0.1
    """Fraction of wrong labels, or standard deviation of the noise of targets."""
    penalty: Annotated[float, Meta(ge=0.0)] = 1e-3
    """Weight of the regularization, if the problem has one."""
    partition: Partition = "shared"
    order: Literal["random", "by-label"] = "random"
    """Order of the permutation that data policies cut into splits; sorted by label, a split has one or two classes."""
    resumes: bool = True
    """If workers have their own parts: whether a worker continues where it stopped, or restarts each iteration."""
    optimizer: Optimizer = Optimizer()
    target: Target = Target()
    federated: Federated | None = None
    data_seed: int | None = None
    """None: data depend on the run's seed, as machines do."""
