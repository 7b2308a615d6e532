"""Generated data for each problem, and its partition among workers."""

from collections.abc import Callable
from typing import Final

import numpy as np

from controlplane.simulator.numerics.convolution import Cnn
from controlplane.simulator.numerics.problems import (
    Array,
    Factorisation,
    Indices,
    KMeans,
    Linear,
    Mlp,
    Problem,
    hinge,
    logistic,
    softmax,
    squared,
)
from controlplane.simulator.numerics.settings import Numerics, Partition

SPLIT_SEED: Final = 20210
"""The seed with which live jobs split data sets into training and held-out samples."""
SPARSE_PART: Final = 0.3
"""Fraction of the features that a lasso's targets depend on."""


def build_problem(settings: Numerics, seed: int) -> Problem:
    """The problem with data for that seed."""
    chance = np.random.default_rng([seed, 31])
    return _BUILDERS[settings.problem](settings, chance)


def partition(kind: Partition, labels: Array, workers: int, seed: int) -> list[Indices]:
    """Each worker's own samples, in processing order; disjoint, and together all samples.

    Raises:
        ValueError: for ``shared``, in which workers have no samples of their own.
    """
    if kind == "two-shards":
        return _two_shards(labels, workers, np.random.default_rng(seed))
    chance = np.random.default_rng([seed, 37])
    if kind == "iid":
        return np.array_split(chance.permutation(len(labels)), workers)
    order = np.lexsort((chance.random(len(labels)), labels))
    if kind == "uneven":
        # Every part has all labels, sorted by label: a worker that never reaches the end of its part misses some
        # labels.
        parts = np.array_split(chance.permutation(len(labels)), workers)
        return [part[np.argsort(labels[part], kind="stable")] for part in parts]
    if kind == "sorted":
        parts = np.array_split(order, workers)
    elif kind == "shards":
        shards = np.array_split(order, 2 * workers)
        dealt = chance.permutation(2 * workers)
        parts = [np.concatenate([shards[dealt[2 * rank]], shards[dealt[2 * rank + 1]]]) for rank in range(workers)]
    else:
        raise ValueError(f"partition {kind}: expected a partition that assigns samples to workers")
    return [chance.permutation(part) for part in parts]


def _two_shards(labels: Array, workers: int, chance: np.random.Generator) -> list[Indices]:
    """As in workers.workloads.partitions; the order within a part is set by the pass over it."""
    shuffled = chance.permutation(len(labels))
    shards = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], 2 * workers)
    hands = chance.permutation(2 * workers).reshape(workers, 2)
    return [np.concatenate([shards[first], shards[second]]) for first, second in hands]


def _clouds(settings: Numerics, chance: np.random.Generator, classes: int) -> tuple[Array, Array]:
    """Gaussian clusters, one per class; a fraction of the labels is wrong."""
    count = settings.samples + settings.held_out
    means = chance.normal(0.0, 1.0, (classes, settings.features))
    means *= settings.separation / np.linalg.norm(means, axis=1, keepdims=True)
    labels = chance.integers(0, classes, count)
    inputs = means[labels] + chance.normal(0.0, 1.0, (count, settings.features))
    if settings.density < 1.0:
        inputs *= chance.random(inputs.shape) < settings.density
    wrong = chance.random(count) < settings.noise
    labels = np.where(wrong, chance.integers(0, classes, count), labels)
    return _with_ones(inputs), labels.astype(np.float64)


def _classified(settings: Numerics, chance: np.random.Generator, classes: int) -> tuple[Array, Array]:
    """Inputs with a column of ones, and labels; held-out samples come first."""
    if settings.dataset == "generated":
        return _clouds(settings, chance, classes)
    inputs, labels = _digits_of_jobs(settings.held_out) if settings.dataset == "digits-of-jobs" else _digits(chance)
    return _with_ones(inputs), labels


def _digits(chance: np.random.Generator) -> tuple[Array, Array]:
    """1,797 images of 8 x 8 pixels, ten classes, shuffled by the seed."""
    from sklearn.datasets import load_digits  # its import takes a second, and only some scenarios need it

    found = load_digits()
    order = chance.permutation(len(found.target))
    return found.data[order] / 16.0, found.target[order].astype(np.float64)


def _digits_of_jobs(held_out: int) -> tuple[Array, Array]:
    """Split and scaled as in workers.workloads.data; held-out samples come last there, and first here."""
    inputs, labels = _digits(np.random.default_rng(SPLIT_SEED))
    train = inputs[: len(labels) - held_out]
    scaled = (inputs - train.mean()) / train.std()
    return np.roll(scaled, held_out, axis=0), np.roll(labels, held_out)


def _with_ones(inputs: Array) -> Array:
    return np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)


def _classifier(loss: Callable[..., tuple[Array, Array]]) -> Callable[[Numerics, np.random.Generator], Problem]:
    def build(settings: Numerics, chance: np.random.Generator) -> Problem:
        classes = settings.classes if loss is softmax else 2
        inputs, labels = _classified(settings, chance, classes)
        outputs = classes if loss is softmax else 1
        return Linear(
            inputs,
            labels,
            settings.held_out,
            loss,
            outputs=outputs,
            ridge=settings.penalty,
            lasso=0.0,
            begins_at_random=settings.dataset == "digits-of-jobs",
        )

    return build


def _regression(*, is_lasso: bool) -> Callable[[Numerics, np.random.Generator], Problem]:
    def build(settings: Numerics, chance: np.random.Generator) -> Problem:
        count = settings.samples + settings.held_out
        inputs = chance.normal(0.0, 1.0, (count, settings.features))
        truth = chance.normal(0.0, 1.0, settings.features)
        if is_lasso:
            truth *= chance.random(settings.features) < SPARSE_PART
        targets = inputs @ truth + chance.normal(0.0, settings.noise, count) if settings.noise else inputs @ truth
        ridge, lasso = (0.0, settings.penalty) if is_lasso else (settings.penalty, 0.0)
        return Linear(inputs, targets, settings.held_out, squared, outputs=1, ridge=ridge, lasso=lasso)

    return build


def _k_means(settings: Numerics, chance: np.random.Generator) -> Problem:
    inputs, labels = _clouds(settings, chance, settings.classes)
    return KMeans(inputs[:, :-1], labels, settings.held_out, clusters=settings.classes)


def _mlp(settings: Numerics, chance: np.random.Generator) -> Problem:
    inputs, labels = _classified(settings, chance, settings.classes)
    return Mlp(inputs, labels, settings.held_out, hidden=settings.hidden, classes=settings.classes)


def _cnn(settings: Numerics, chance: np.random.Generator) -> Problem:
    """A CNN on images: the digits, or Gaussian clusters around one image per class."""
    inputs, labels = _classified(settings, chance, settings.classes)
    return Cnn(inputs[:, :-1], labels, settings.held_out, hidden=settings.hidden, classes=settings.classes)


def _factorisation(settings: Numerics, chance: np.random.Generator) -> Problem:
    """A square matrix with ``features`` rows and rank ``classes``, with some known cells."""
    side, count = settings.features, settings.samples + settings.held_out
    left, right = (chance.normal(0.0, 1.0, (side, settings.classes)) for _ in range(2))
    cells = chance.integers(0, side, (count, 2))
    values = (left[cells[:, 0]] * right[cells[:, 1]]).sum(axis=1) + chance.normal(0.0, 1.0, count) * settings.noise
    return Factorisation(cells, values, settings.held_out, shape=(side, side), rank=settings.classes)


_BUILDERS: Final[dict[str, Callable[[Numerics, np.random.Generator], Problem]]] = {
    "logistic-regression": _classifier(logistic),
    "softmax-regression": _classifier(softmax),
    "svm": _classifier(hinge),
    "lasso": _regression(is_lasso=True),
    "ridge": _regression(is_lasso=False),
    "k-means": _k_means,
    "matrix-factorisation": _factorisation,
    "mlp": _mlp,
    "cnn": _cnn,
}
