"""Models as functions of stacked workers: parameters ``(m, p)`` with m = n workers or 1, samples ``(n, b)``, sums out.

Gradients are *sums* over a worker's samples, with the sum of the losses, so that unequal shares are weighted by their
numbers of samples (ruling 7). ``mask`` is 0 for padding of shorter shares.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Sums = tuple[Array, Array]
"""Gradients ``(n, p)`` and losses ``(n,)``."""


class Problem(Protocol):
    """A model with its data."""

    size: int
    """The number of parameters."""
    labels: Array
    """The labels by which partitions sort."""

    def start(self, chance: np.random.Generator) -> Array:
        """The initial parameters ``(p,)``."""

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """Sums of gradients and losses over each worker's samples."""

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """Mean loss, and accuracy for classifiers, on the held-out samples."""

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """The parameters after an update that is a sum over ``samples`` samples; ``move`` turns a mean gradient into a
        step.
        """


def logistic(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Derivative and loss of one score against labels 0 and 1."""
    margin = np.where(labels > 0, scores[..., 0], -scores[..., 0])
    loss = np.logaddexp(0.0, -margin)
    slope = -1.0 / (1.0 + np.exp(np.clip(margin, -500, 500)))
    return np.where(labels > 0, slope, -slope)[..., None], loss


def hinge(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Derivative and loss of a support vector machine."""
    sign = np.where(labels > 0, 1.0, -1.0)
    margin = sign * scores[..., 0]
    return np.where(margin < 1.0, -sign, 0.0)[..., None], np.maximum(0.0, 1.0 - margin)


def softmax(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Derivatives and loss of one score per class."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    exponents = np.exp(shifted)
    total = exponents.sum(axis=-1, keepdims=True)
    slopes = exponents / total
    chosen = labels.astype(np.int64)[..., None]
    loss = np.log(total[..., 0]) - np.take_along_axis(shifted, chosen, axis=-1)[..., 0]
    np.put_along_axis(slopes, chosen, np.take_along_axis(slopes, chosen, axis=-1) - 1.0, axis=-1)
    return slopes, loss


def squared(scores: Array, targets: Array) -> tuple[Array, Array]:
    """Derivative and loss of a regression."""
    error = scores[..., 0] - targets
    return error[..., None], 0.5 * error * error


Loss = Callable[[Array, Array], tuple[Array, Array]]


class Linear:
    """A linear model: regressions, classifiers, support vector machines.

    Args:
        inputs: ``(samples, features)``, with a column of ones for a bias.
        loss: maps scores and labels to derivatives and losses.
        ridge: weight of half the squared norm, per sample.
        lasso: weight of the absolute norm; applied as a proximal step.
        begins_at_random: initial weights uniform within 1 / sqrt(inputs), as jobs with ``init: seed``; otherwise 0.
    """

    def __init__(
        self,
        inputs: Array,
        labels: Array,
        held_out: int,
        loss: Loss,
        *,
        outputs: int,
        ridge: float,
        lasso: float,
        begins_at_random: bool = False,
    ) -> None:
        self._held = inputs[:held_out], labels[:held_out]
        self._inputs, self.labels = inputs[held_out:], labels[held_out:]
        self._loss, self._outputs, self._ridge, self._lasso = loss, outputs, ridge, lasso
        self._begins_at_random = begins_at_random
        self.size = inputs.shape[1] * outputs

    def start(self, chance: np.random.Generator) -> Array:
        """Zeros, since the losses are convex, or small random weights with biases of 0."""
        if not self._begins_at_random:
            return np.zeros(self.size)
        features = self._inputs.shape[1] - 1
        weights = chance.uniform(-(features**-0.5), features**-0.5, (self._outputs, features))
        return np.concatenate([weights.T.ravel(), np.zeros(self._outputs)])

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """By the chain rule."""
        weights = parameters.reshape(len(parameters), -1, self._outputs)
        inputs = self._inputs[samples]
        slopes, losses = self._loss(inputs @ weights, self.labels[samples])
        gradients = np.swapaxes(inputs, 1, 2) @ (slopes * mask[..., None])
        counts = mask.sum(axis=1)
        gradients = gradients.reshape(len(samples), -1) + self._ridge * counts[:, None] * parameters
        return gradients, (losses * mask).sum(axis=1)

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """Loss and accuracy on the held-out samples; a regression has no accuracy."""
        inputs, labels = self._held
        scores = inputs @ parameters.reshape(-1, self._outputs)
        _, losses = self._loss(scores, labels)
        if self._loss is squared:
            return float(losses.mean()), None
        guess = scores.argmax(axis=1) if self._outputs > 1 else scores[:, 0] > 0
        return float(losses.mean()), float((guess == labels).mean())

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """A gradient step, followed by shrinkage for the lasso."""
        step = move(total / samples)
        moved: Array = parameters - step
        if not self._lasso:
            return moved
        # Proximal gradient: the shrinkage has the same step size as the gradient.
        scale = move(np.full_like(parameters, self._lasso))
        shrunk: Array = np.sign(moved) * np.maximum(0.0, np.abs(moved) - np.abs(scale))
        return shrunk


class Mlp:
    """One hidden layer of tanh units and a softmax."""

    def __init__(self, inputs: Array, labels: Array, held_out: int, *, hidden: int, classes: int) -> None:
        self._held = inputs[:held_out], labels[:held_out]
        self._inputs, self.labels = inputs[held_out:], labels[held_out:]
        self._shapes = (inputs.shape[1], hidden), (hidden, classes)
        self._cut = inputs.shape[1] * hidden
        self.size = self._cut + hidden * classes

    def start(self, chance: np.random.Generator) -> Array:
        """Normal, scaled by the number of inputs of each layer."""
        layers = [chance.normal(0.0, 1.0 / np.sqrt(rows), rows * columns) for rows, columns in self._shapes]
        return np.concatenate(layers)

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """By the chain rule, layer by layer."""
        first, second = self._layers(parameters)
        inputs = self._inputs[samples]
        hidden = np.tanh(inputs @ first)
        slopes, losses = softmax(hidden @ second, self.labels[samples])
        slopes = slopes * mask[..., None]
        upper = np.swapaxes(hidden, 1, 2) @ slopes
        below = (slopes @ np.swapaxes(second, 1, 2)) * (1.0 - hidden * hidden)
        lower = np.swapaxes(inputs, 1, 2) @ below
        n = len(samples)
        return np.concatenate([lower.reshape(n, -1), upper.reshape(n, -1)], axis=1), (losses * mask).sum(axis=1)

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """On the held-out samples."""
        first, second = self._layers(parameters[None])
        inputs, labels = self._held
        scores = np.tanh(inputs @ first[0]) @ second[0]
        _, losses = softmax(scores, labels)
        return float(losses.mean()), float((scores.argmax(axis=1) == labels).mean())

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """A gradient step."""
        stepped: Array = parameters - move(total / samples)
        return stepped

    def _layers(self, parameters: Array) -> tuple[Array, Array]:
        m = len(parameters)
        lower, upper = parameters[:, : self._cut], parameters[:, self._cut :]
        return lower.reshape(m, *self._shapes[0]), upper.reshape(m, *self._shapes[1])


class KMeans:
    """K-means: an update has the sums and counts of the samples nearest to each center; it is not a gradient."""

    def __init__(self, inputs: Array, labels: Array, held_out: int, *, clusters: int) -> None:
        self._held, self._inputs, self.labels = inputs[:held_out], inputs[held_out:], labels[held_out:]
        self._clusters, self._features = clusters, inputs.shape[1]
        self._cut = clusters * inputs.shape[1]
        self.size = self._cut + clusters

    def start(self, chance: np.random.Generator) -> Array:
        """Initial centers by k-means++; the entries for counts stay 0."""
        centres = self._inputs[chance.integers(0, len(self._inputs), 1)]
        while len(centres) < self._clusters:
            nearest = self._distances(centres[None], self._inputs[None])[0].min(axis=1)
            pick = chance.choice(len(self._inputs), p=nearest / nearest.sum())
            centres = np.concatenate([centres, self._inputs[pick : pick + 1]])
        return np.concatenate([centres.ravel(), np.zeros(self._clusters)])

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """Sum and number of each center's samples."""
        inputs = self._inputs[samples]
        distances = self._distances(self._centres(parameters), inputs)
        members = np.eye(self._clusters)[distances.argmin(axis=2)] * mask[..., None]
        summed = np.swapaxes(members, 1, 2) @ inputs
        loss = (distances.min(axis=2) * mask).sum(axis=1)
        return np.concatenate([summed.reshape(len(samples), -1), members.sum(axis=1)], axis=1), loss

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """Mean squared distance to the nearest center."""
        distances = self._distances(self._centres(parameters[None]), self._held[None])
        return float(distances[0].min(axis=1).mean()), None

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """Move centers towards the means of their samples; a step of 1 moves them to the means."""
        counts = total[self._cut :]
        sums = total[: self._cut].reshape(self._clusters, -1)
        centres = parameters[: self._cut].reshape(self._clusters, -1)
        towards = np.where(counts[:, None] > 0, centres - sums / np.maximum(counts, 1.0)[:, None], 0.0)
        stepped: Array = parameters - move(np.concatenate([towards.ravel(), np.zeros(self._clusters)]))
        return stepped

    def _centres(self, parameters: Array) -> Array:
        return parameters[:, : self._cut].reshape(len(parameters), self._clusters, self._features)

    def _distances(self, centres: Array, inputs: Array) -> Array:
        """``(n, b, clusters)`` squared distances."""
        crossed = inputs @ np.swapaxes(centres, 1, 2)
        lengths = (inputs * inputs).sum(axis=2)[..., None] + (centres * centres).sum(axis=2)[:, None, :]
        distances: Array = np.maximum(0.0, lengths - 2.0 * crossed)
        return distances


class Factorisation:
    """Matrix factorization: the product of two thin matrices, fitted to the known cells; a sample is a cell."""

    def __init__(self, cells: Indices, values: Array, held_out: int, *, shape: tuple[int, int], rank: int) -> None:
        self._held = cells[:held_out], values[:held_out]
        self._cells, self.labels = cells[held_out:], values[held_out:]
        self._rank, self._rows = rank, shape[0]
        self.size = (shape[0] + shape[1]) * rank

    def start(self, chance: np.random.Generator) -> Array:
        """Small random values, since zeros are a saddle point."""
        return chance.normal(0.0, 1.0 / np.sqrt(self._rank), self.size)

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """Gradients: each cell affects one row of each factor."""
        n = len(samples)
        factors = np.broadcast_to(parameters, (n, self.size)).reshape(n, -1, self._rank)
        cells = self._cells[samples]
        rows, columns = cells[..., 0], cells[..., 1] + self._rows
        which = np.arange(n)[:, None]
        left, right = factors[which, rows], factors[which, columns]
        error = ((left * right).sum(axis=2) - self.labels[samples]) * mask
        gradients = np.zeros((n, *factors.shape[1:]))
        np.add.at(gradients, (which, rows), error[..., None] * right)
        np.add.at(gradients, (which, columns), error[..., None] * left)
        return gradients.reshape(n, -1), 0.5 * (error * error).sum(axis=1)

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """Half the mean squared error on held-out cells."""
        factors = parameters.reshape(-1, self._rank)
        cells, values = self._held
        error = (factors[cells[:, 0]] * factors[cells[:, 1] + self._rows]).sum(axis=1) - values
        return float(0.5 * (error * error).mean()), None

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """A gradient step. A cell affects only two rows, so gradients are averaged over the cells of each row."""
        stepped: Array = parameters - move(total * (self.size / (2 * self._rank)) / samples)
        return stepped
