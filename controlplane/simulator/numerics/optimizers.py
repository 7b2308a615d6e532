"""Optimizers: from a mean gradient to a step."""

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from controlplane.simulator.numerics.problems import Array
from controlplane.simulator.numerics.settings import Optimizer

ADAM_BETAS: Final = 0.9, 0.999
ADAM_EPSILON: Final = 1e-8


class StepOptimizer(Protocol):
    """An optimizer with its state."""

    def mover(self, scale: float) -> Callable[[Array], Array]:
        """A function from a mean gradient to a step, scaled by ``scale``."""

    def forget(self, part: slice) -> None:
        """Reset the state for these parameters."""


class Sgd:
    """SGD, optionally with momentum."""

    def __init__(self, settings: Optimizer, size: int) -> None:
        self._lr, self._momentum = settings.lr, settings.momentum
        self._velocity = np.zeros(size)

    def mover(self, scale: float) -> Callable[[Array], Array]:
        """Learning rate times gradient, or times velocity."""

        def move(gradient: Array) -> Array:
            if self._momentum:
                self._velocity = self._momentum * self._velocity + gradient
                gradient = self._velocity
            step: Array = (self._lr * scale) * gradient
            return step

        return move

    def forget(self, part: slice) -> None:
        """Reset the velocity; parameters do not change."""
        velocity = self._velocity.copy()
        velocity[part] = 0.0
        self._velocity = velocity


class Adam:
    """Kingma and Ba, 2015."""

    def __init__(self, settings: Optimizer, size: int) -> None:
        self._lr, self._steps = settings.lr, 0
        self._first, self._second = np.zeros(size), np.zeros(size)

    def mover(self, scale: float) -> Callable[[Array], Array]:
        """Learning rate times the corrected first moment over the root of the second."""

        def move(gradient: Array) -> Array:
            b1, b2 = ADAM_BETAS
            self._steps += 1
            self._first = b1 * self._first + (1 - b1) * gradient
            self._second = b2 * self._second + (1 - b2) * gradient * gradient
            first = self._first / (1 - b1**self._steps)
            second = self._second / (1 - b2**self._steps)
            step: Array = (self._lr * scale) * first / (np.sqrt(second) + ADAM_EPSILON)
            return step

        return move

    def forget(self, part: slice) -> None:
        """Reset both moments; the step count is common to all parameters and continues."""
        self._first, self._second = self._first.copy(), self._second.copy()
        self._first[part] = self._second[part] = 0.0


def build_optimizer(settings: Optimizer, size: int) -> StepOptimizer:
    """The optimizer that the settings name."""
    return Adam(settings, size) if settings.name == "adam" else Sgd(settings, size)
