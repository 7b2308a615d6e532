"""What a scenario says about its mathematics."""

from typing import Annotated, Literal

from msgspec import Meta

from controlplane.protocol.base import Positive
from controlplane.protocol.spec import Part

ProblemName = Literal[
    "logistic-regression", "softmax-regression", "svm", "lasso", "ridge", "k-means", "matrix-factorisation", "mlp"
]

Partition = Literal["shared", "iid", "shards", "sorted"]
"""Whose samples are whose: everybody draws from one seeded permutation; or each worker has its own part: at random; of
two shards sorted by label, as PSP 6.1; or a stretch of the data as sorted by label."""


class Optimizer(Part, frozen=True, kw_only=True):
    """What the servers do with a mean gradient."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Meta(gt=0.0)] = 0.1
    momentum: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0


class Target(Part, frozen=True, kw_only=True):
    """When the job has converged: held-out loss at most, or accuracy at least so much; seen at an evaluation."""

    loss: float | None = None
    accuracy: float | None = None


class Numerics(Part, frozen=True, kw_only=True):
    """A model, its data and its optimiser."""

    problem: ProblemName
    samples: Positive = 4000
    held_out: Positive = 1000
    features: Positive = 20
    classes: Positive = 2
    """Of the labels; clusters of k-means; rank of a factorisation."""
    hidden: Positive = 16
    """Of the MLP."""
    separation: Annotated[float, Meta(gt=0.0)] = 2.0
    """Distance of the classes' means, in standard deviations."""
    noise: Annotated[float, Meta(ge=0.0)] = 0.1
    """Part of labels that are wrong, or the standard deviation of targets."""
    penalty: Annotated[float, Meta(ge=0.0)] = 1e-3
    """Weight of the norm of the parameters, where the problem has one."""
    partition: Partition = "shared"
    resumes: bool = True
    """With a part of its own: whether a worker goes on where it stopped, or begins anew each iteration."""
    optimizer: Optimizer = Optimizer()
    arrival_scale: Annotated[float, Meta(gt=0.0)] | None = None
    """Where updates are applied one by one: of the step; None: one over the number of workers (ruling 23)."""
    target: Target = Target()
    data_seed: int | None = None
    """None: data change with the run's seed, as machines do."""
