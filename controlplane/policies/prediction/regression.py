"""Predicts speed from CPU and memory use, learned from all workers together (ruling 9); needs no warm-up.

log v = level + beta . f(CPU, memory). The slopes beta are common to all workers and fitted by recursive least squares
on each worker's deviations from its own means, so that a fast machine that happens to be busy does not distort them.
Each worker has its own level: an EMA of log v - beta . f, stored as separate EMAs of log v and f, so that it remains
correct when beta changes. A deviation that was not there in the previous iteration changes the level little, since most
are spikes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from controlplane.policies.catalogue.prediction import RegressionParameters
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.sheet import Array, Sheet, columns, fill, predictions
from controlplane.protocol.base import Value

FEATURES = 4
WIDTH = 5 + 3 * FEATURES

SLOW = 0.02
"""Weight of the newest observation in the means that deviations refer to."""

RIDGE = 0.05
"""Ridge penalty that keeps slopes near 0 until the readings have varied, in squared units of the features."""

TYPICAL = 0.1
"""Initial typical deviation of log v."""

OUTLYING = 2.5
"""A deviation above this multiple of the typical one is first treated as a spike."""


class RegressionState(Value, frozen=True, kw_only=True):
    """``sheet``: for each rank the count, last sign, log speed (EMA, mean) and features (EMA, mean, coming)."""

    sheet: Sheet = Sheet()
    moments: bytes = b""
    """Sums of feature products and of feature times log speed, both of deviations."""
    typical: float = TYPICAL
    """Smoothed size of the deviations that are not spikes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Follows changes explained by CPU and memory immediately, and other changes slowly."""

    name: ClassVar[str] = "regression"
    state_type: ClassVar[type[msgspec.Struct]] = RegressionState

    parameters: RegressionParameters

    def start(self) -> RegressionState:
        """A state without workers and slopes."""
        return RegressionState()

    def observe(self, measured: Mapping[int, Measured], state: RegressionState) -> RegressionState:
        """Update the slopes from all workers' deviations, then each worker's level."""
        ranks, rows = state.sheet.with_ranks(measured, np.zeros(WIDTH))
        at, seen = columns(measured, ranks)
        if not len(at):
            return state
        part, logs, coming = rows[at], np.log(seen[:, 0]), features(seen[:, 1], seen[:, 2])
        moments = self._moments(state, part, logs)
        typical = self._levels(part, logs, slopes(moments), state.typical)
        part[:, -FEATURES:] = coming
        # The first observation has no readings from the start of its iteration: those from its end are used.
        new = part[:, 0] == 1
        part[new, 5:] = np.tile(coming[new], 3)
        rows[at] = part
        return RegressionState(sheet=fill(ranks, rows), moments=moments.tobytes(), typical=typical)

    def predict(self, state: RegressionState) -> dict[int, float]:
        """Each worker's speed from its level and the CPU and memory use at the start of the coming iteration."""
        rows = state.sheet.rows(WIDTH)
        _, level, _, usual, _, coming = _parts(rows)
        speeds = np.exp(level + (coming - usual) @ slopes(_read(state.moments)))
        return predictions(state.sheet.ranks, speeds)

    def carry(self, before: "Regression", state: RegressionState) -> RegressionState:
        """Slopes and levels; only weights change."""
        return state

    def keep(self, ranks: Collection[int], state: RegressionState) -> RegressionState:
        """The levels of ``ranks``; the slopes are common to all workers and stay."""
        return RegressionState(sheet=state.sheet.kept(ranks, WIDTH), moments=state.moments, typical=state.typical)

    def _moments(self, state: RegressionState, rows: Array, logs: Array) -> Array:
        """Least squares sums with one more iteration, weighted against outliers (Huber)."""
        count, _, mean, _, means, coming = _parts(rows)
        moments = _read(state.moments) * self.parameters.forgetting
        known = count >= 2
        x, y = (coming - means)[known], (logs - mean)[known]
        error = np.abs(y - x @ slopes(moments))
        weight = np.minimum(1.0, OUTLYING * state.typical / np.maximum(error, 1e-12))
        moments[:, :FEATURES] += np.einsum("n,ni,nj->ij", weight, x, x)
        moments[:, FEATURES] += np.einsum("n,ni,n->i", weight, x, y)
        return moments

    def _levels(self, rows: Array, logs: Array, beta: Array, typical: float) -> float:
        """Update the means and levels of ``rows`` in place; returns the new typical deviation."""
        count, level, mean, usual, means, coming = _parts(rows)
        first = count == 0
        departure = np.where(first, 0.0, logs - level - np.sum((coming - usual) * beta, axis=1))
        sign = np.where(np.abs(departure) > OUTLYING * typical, np.sign(departure), 0.0)
        lasting = (sign == 0) | (sign == rows[:, 4])
        limit = np.where(lasting, np.inf, OUTLYING * typical / np.maximum(np.abs(departure), 1e-12))
        pace = np.where(first, 1.0, self.parameters.alpha * np.minimum(1.0, limit))
        slow = np.maximum(SLOW, 1.0 / (count + 1))
        rows[:, 1] += pace * (logs - level)
        rows[:, 2] += slow * (logs - mean)
        usual += (pace * ~first)[:, None] * (coming - usual)
        means += (slow * ~first)[:, None] * (coming - means)
        rows[:, 0] += 1
        rows[:, 4] = sign
        ordinary = np.abs(departure[~first & (sign == 0)])
        return typical + SLOW * (float(np.mean(ordinary)) * 1.25 - typical) if len(ordinary) else typical


def features(cpu: Array, memory: Array) -> Array:
    """(n, FEATURES): CPU and memory in use, and their squares, for a response that is not quite log-linear."""
    return np.stack([cpu, memory, cpu**2, memory**2], axis=1)


def slopes(moments: Array) -> Array:
    """Solve the least squares sums for beta."""
    gram = moments[:, :FEATURES] + RIDGE * np.eye(FEATURES)
    return np.asarray(np.linalg.solve(gram, moments[:, FEATURES]))


def _read(moments: bytes) -> Array:
    if not moments:
        return np.zeros((FEATURES, FEATURES + 1))
    return np.frombuffer(moments, dtype=np.float64).reshape(FEATURES, FEATURES + 1).copy()


def _parts(rows: Array) -> tuple[Array, Array, Array, Array, Array, Array]:
    """Views: count, level and mean of log v, then EMA, mean and coming values of the features."""
    f = FEATURES
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 5 : 5 + f], rows[:, 5 + f : 5 + 2 * f], rows[:, 5 + 2 * f :]
