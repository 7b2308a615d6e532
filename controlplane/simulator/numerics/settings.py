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
"""How samples are partitioned: all workers draw from one seeded permutation; or each has its own part: at random; at
random, but the samples of one label after those of another; of two shards sorted by label, as PSP 6.1; a stretch of the
data as sorted by label; or of two shards as a job with ``partition: two-shards`` deals and orders them."""

Dataset = Literal["generated", "digits", "digits-of-jobs"]
"""Drawn for each data seed; the pictures of digits that come with scikit-learn, divided anew for each; or these as jobs
have them: the same samples held out, of mean 0 and deviation 1, and the values that ``init: seed`` begins with."""


class Optimizer(Part, frozen=True, kw_only=True):
    """The servers' treatment of a mean gradient."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Meta(gt=0.0)] = 0.1
    momentum: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0


class Target(Part, frozen=True, kw_only=True):
    """When the job has converged: held-out loss at most, or accuracy at least so much; seen at an evaluation."""

    loss: float | None = None
    accuracy: Fraction | None = None


class Federated(Part, frozen=True, kw_only=True):
    """Rounds of local steps, of which each client sends what came of them (FedAvg, LB-BSP 3.5)."""

    local_steps: Positive = 20
    """Tau."""
    scales: Literal["batch", "steps", "rate"] = "batch"
    """What a client's share changes: the samples of each step; the number of steps instead; or the samples and the
    learning rate with them (Fig. 13)."""
    weights: Literal["equal", "samples"] = "equal"
    """Of the clients in the mean: alike, or by the samples that they processed (ruling 10)."""


class Numerics(Part, frozen=True, kw_only=True):
    """A model, its data and its optimizer."""

    problem: ProblemName
    dataset: Dataset = "generated"
    samples: Positive = 4000
    held_out: Positive = 1000
    features: Positive = 20
    classes: Positive = 2
    """Of the labels; clusters of k-means; rank of a factorisation."""
    hidden: Positive = 16
    """Of the MLP and the CNN."""
    density: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """Part of a generated sample's features that are not zero."""
    separation: Annotated[float, Meta(gt=0.0)] = 2.0
    """Distance of the classes' means, in standard deviations."""
    noise: Annotated[float, Meta(ge=0.0)] = 0.1
    """Part of labels that are wrong, or the standard deviation of targets."""
    penalty: Annotated[float, Meta(ge=0.0)] = 1e-3
    """Weight of the norm of the parameters, where the problem has one."""
    partition: Partition = "shared"
    order: Literal["random", "by-label"] = "random"
    """Of the permutation that data policies cut into splits: by label, a split holds one class or two."""
    resumes: bool = True
    """With its own part: whether a worker continues where it stopped, or restarts each iteration."""
    optimizer: Optimizer = Optimizer()
    target: Target = Target()
    federated: Federated | None = None
    data_seed: int | None = None
    """None: data change with the run's seed, as machines do."""
