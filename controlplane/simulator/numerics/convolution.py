"""A small convolutional network: that of PSP section 6.1 with one layer of each kind.

One convolution of 3 x 3 without padding, ReLU, one dense layer with ReLU, a softmax; the paper's network has two of
each, for images of 28 x 28 and 62 classes. Arrays are stacked over workers as in ``problems``.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controlplane.simulator.numerics.problems import Array, Indices, Sums, softmax

CHANNELS: Final = 8
KERNEL: Final = 3


class Cnn:
    """A CNN for square images, given as rows of pixels."""

    def __init__(self, inputs: Array, labels: Array, held_out: int, *, hidden: int, classes: int) -> None:
        side = int(np.sqrt(inputs.shape[1]))
        if side * side != inputs.shape[1] or side <= KERNEL:
            raise ValueError(
                f"{inputs.shape[1]} features, expected a square of at least {(KERNEL + 1) ** 2}: a picture"
            )
        self._patches = _patches(side)
        self._held = inputs[:held_out], labels[:held_out]
        self._inputs, self.labels = inputs[held_out:], labels[held_out:]
        places = len(self._patches)
        self._shapes = (KERNEL * KERNEL + 1, CHANNELS), (places * CHANNELS + 1, hidden), (hidden + 1, classes)
        self._cuts = np.cumsum([rows * columns for rows, columns in self._shapes])
        self.size = int(self._cuts[-1])

    def start(self, chance: np.random.Generator) -> Array:
        """He initialization."""
        layers = [chance.normal(0.0, np.sqrt(2.0 / rows), rows * columns) for rows, columns in self._shapes]
        return np.concatenate(layers)

    def sums(self, parameters: Array, samples: Indices, mask: Array) -> Sums:
        """Sums of gradients and losses, by the chain rule."""
        kernel, dense, last = self._layers(parameters)
        n, b = samples.shape
        patches = _ones(self._inputs[samples][:, :, self._patches])
        flat = patches.reshape(n, b * len(self._patches), KERNEL * KERNEL + 1)
        seen = np.maximum(0.0, flat @ kernel).reshape(n, b, len(self._patches) * CHANNELS)
        inner = np.maximum(0.0, _ones(seen) @ dense)
        slopes, losses = softmax(_ones(inner) @ last, self.labels[samples])
        slopes = slopes * mask[..., None]
        upper = np.swapaxes(_ones(inner), 1, 2) @ slopes
        middle = (slopes @ np.swapaxes(last[:, :-1], 1, 2)) * (inner > 0)
        lower = np.swapaxes(_ones(seen), 1, 2) @ middle
        below = ((middle @ np.swapaxes(dense[:, :-1], 1, 2)) * (seen > 0)).reshape(n, b * len(self._patches), CHANNELS)
        first = np.swapaxes(flat, 1, 2) @ below
        gradients = np.concatenate([layer.reshape(n, -1) for layer in (first, lower, upper)], axis=1)
        return gradients, (losses * mask).sum(axis=1)

    def score(self, parameters: Array) -> tuple[float, float | None]:
        """Loss and accuracy on the held-out images."""
        kernel, dense, last = (layer[0] for layer in self._layers(parameters[None]))
        inputs, labels = self._held
        seen = np.maximum(0.0, _ones(inputs[:, self._patches]) @ kernel).reshape(len(inputs), -1)
        scores = _ones(np.maximum(0.0, _ones(seen) @ dense)) @ last
        _, losses = softmax(scores, labels)
        return float(losses.mean()), float((scores.argmax(axis=1) == labels).mean())

    def step(self, parameters: Array, total: Array, samples: int, move: Callable[[Array], Array]) -> Array:
        """A gradient step."""
        stepped: Array = parameters - move(total / samples)
        return stepped

    def _layers(self, parameters: Array) -> list[Array]:
        """The weights of each layer, with the biases in the last row."""
        m = len(parameters)
        cut = np.split(parameters, self._cuts[:-1], axis=1)
        return [layer.reshape(m, *shape) for layer, shape in zip(cut, self._shapes, strict=True)]


def _ones(values: Array) -> Array:
    """The values with a column of ones at the end, for the biases."""
    return np.concatenate([values, np.ones((*values.shape[:-1], 1))], axis=-1)


def _patches(side: int) -> NDArray[np.int64]:
    """``(positions, 9)``: the pixels under the kernel at each position."""
    corners = [row * side + column for row in range(side - KERNEL + 1) for column in range(side - KERNEL + 1)]
    inside = [row * side + column for row in range(KERNEL) for column in range(KERNEL)]
    return np.array(corners, dtype=np.int64)[:, None] + np.array(inside, dtype=np.int64)[None, :]
