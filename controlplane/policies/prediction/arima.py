"""ARIMA(p, d, q) of each worker's speed (LB-BSP section 3.2.2, Table 3: (2, 2, 1)), fitted by recursive least squares.

The d-th difference w of the speed follows w = sum of phi_i w_(k-i) + sum of theta_j e_(k-j) + e, where e are the
residuals of the fit itself (extended least squares). All workers are one batched operation. It knows nothing of CPU
and memory.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from controlplane.policies.parameters import ArimaParameters
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.sheet import Array, Sheet, columns, fill, predictions
from controlplane.protocol.base import Value

FORGETTING = 0.995
"""Weight of an iteration against the next: a memory of about 200."""

PRIOR = 10.0
"""Variance of the coefficients before anything is seen, and the most that forgetting may raise it to."""

INVERTIBLE = 0.98
"""Moving average coefficients beyond 1 would let old residuals grow for ever."""

LARGEST_STEP = 2.0
"""No forecast is further than this factor from the last speed: twice differenced noise can point anywhere."""


class ArimaState(Value, frozen=True, kw_only=True):
    """Of each rank: observations, unit, last speeds, last residuals, coefficients, their covariance."""

    sheet: Sheet = Sheet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arima:
    """Extrapolates each worker's own past."""

    name: ClassVar[str] = "arima"
    state_type: ClassVar[type[msgspec.Struct]] = ArimaState

    parameters: ArimaParameters

    def start(self) -> ArimaState:
        """Knows nobody."""
        return ArimaState()

    def observe(self, measured: Mapping[int, Measured], state: ArimaState) -> ArimaState:
        """One step of recursive least squares for everybody who was measured."""
        ranks, rows = state.sheet.with_ranks(measured, self._blank())
        at, seen = columns(measured, ranks)
        if len(at):
            rows[at] = self._step(rows[at], seen[:, 0])
        return ArimaState(sheet=fill(ranks, rows))

    def predict(self, state: ArimaState) -> dict[int, float]:
        """One step ahead; the last speed while too few are known."""
        rows = state.sheet.rows(self._width)
        if not len(rows):
            return {}
        parts = self._split(rows)
        last = parts["past"][:, 0]
        ahead = np.sum(parts["coefficients"] * self._regressors(parts), axis=1) + self._carried(parts["past"])
        ahead = np.clip(ahead, last / LARGEST_STEP, last * LARGEST_STEP)
        known = parts["count"][:, 0] >= self._needed
        return predictions(state.sheet.ranks, np.where(known, ahead, last) * parts["unit"][:, 0])

    def carry(self, before: "Arima", state: ArimaState) -> ArimaState:
        """Everything with the same orders; else the last speeds alone, from which the new model begins."""
        if before.parameters == self.parameters:
            return state
        old = before._split(state.sheet.rows(before._width))
        rows = np.tile(self._blank(), (len(state.sheet.ranks), 1))
        new = self._split(rows)
        new["count"][:] = np.minimum(old["count"], 1)
        new["unit"][:], new["past"][:, :1] = old["unit"], old["past"][:, :1]
        return ArimaState(sheet=fill(state.sheet.ranks, rows))

    def keep(self, ranks: Collection[int], state: ArimaState) -> ArimaState:
        """What is known about ``ranks``."""
        return ArimaState(sheet=state.sheet.kept(ranks, self._width))

    def _step(self, rows: Array, speeds: Array) -> Array:
        parts = self._split(rows)
        first = parts["count"][:, 0] == 0
        parts["unit"][first, 0] = speeds[first]
        value = speeds / parts["unit"][:, 0]
        known = parts["count"][:, 0] >= self._needed
        x = self._regressors(parts) * known[:, None]
        order = self._order
        covariance = parts["covariance"].reshape(len(rows), order, order)
        spread = np.einsum("nij,nj->ni", covariance, x)
        gain = spread / (FORGETTING + np.sum(x * spread, axis=1))[:, None]
        error = value - self._carried(parts["past"]) - np.sum(parts["coefficients"] * x, axis=1)
        parts["coefficients"][:] += gain * np.where(known, error, 0.0)[:, None]
        moving = parts["coefficients"][:, self.parameters.p :]
        np.clip(moving, -INVERTIBLE, INVERTIBLE, out=moving)
        covariance = (covariance - gain[:, :, None] * spread[:, None, :]) / FORGETTING
        largest = np.trace(covariance, axis1=1, axis2=2) / max(1, order) / PRIOR
        covariance /= np.maximum(1.0, largest)[:, None, None]
        parts["covariance"][:] = covariance.reshape(len(rows), -1)
        _shift(parts["residuals"], np.where(known, error, 0.0))
        _shift(parts["past"], value)
        parts["count"] += 1
        return rows

    @property
    def _order(self) -> int:
        return self.parameters.p + self.parameters.q

    @property
    def _needed(self) -> int:
        """Speeds that the first difference equation takes."""
        return self.parameters.p + self.parameters.d

    @property
    def _lengths(self) -> dict[str, int]:
        past = max(1, self._needed)
        return {
            "count": 1,
            "unit": 1,
            "past": past,
            "residuals": self.parameters.q,
            "coefficients": self._order,
            "covariance": self._order**2,
        }

    @property
    def _width(self) -> int:
        return sum(self._lengths.values())

    def _split(self, rows: Array) -> dict[str, Array]:
        """The parts of the rows, as views."""
        lengths = self._lengths
        ends = np.cumsum(list(lengths.values()))
        return {name: rows[:, end - lengths[name] : end] for name, end in zip(lengths, ends, strict=True)}

    def _blank(self) -> Array:
        blank = np.zeros((1, self._width))
        blank[0, self._width - self._order**2 :] = (PRIOR * np.eye(self._order)).ravel()
        row: Array = blank[0]
        return row

    def _regressors(self, parts: dict[str, Array]) -> Array:
        """The last p differences and q residuals, newest first."""
        differences = parts["past"]
        for _ in range(self.parameters.d):
            differences = differences[:, :-1] - differences[:, 1:]
        return np.concatenate([differences[:, : self.parameters.p], parts["residuals"]], axis=1)

    def _carried(self, past: Array) -> Array:
        """What d-fold summation adds to the next difference: 0, the last speed, twice it less the one before, ..."""
        d = self.parameters.d
        total: Array = np.zeros(len(past), dtype=np.float64)
        for lag in range(1, d + 1):
            total -= (-1) ** lag * math.comb(d, lag) * past[:, lag - 1]
        return np.asarray(total)


def _shift(window: Array, newest: Array) -> None:
    """Put the newest column first, in place."""
    if window.shape[1]:
        window[:, 1:] = window[:, :-1].copy()
        window[:, 0] = newest
