"""ARIMA(p, d, q) of each worker's speed (LB-BSP section 3.2.2, Table 3: (2, 2, 1)), fitted recursively.

The d-th difference w of the speed follows w = sum of phi_i w_(k-i) + sum of theta_j e_(k-j) + e, where e are the
residuals of the fit itself; with d = 0 its mean is subtracted. The fit is recursive maximum likelihood (Ljung and
Soderstrom, 1983): least squares with regressors filtered by the moving average; without the filter it does not converge
for an overdifferenced series. Errors of outliers are clipped, and the coefficients stay stationary and invertible
(``stationary``). All workers are fitted in one batched operation. CPU and memory are not used.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np

from controlplane.policies.catalogue.prediction import ArimaParameters
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.sheet import Array, Sheet, columns, fill, predictions
from controlplane.policies.prediction.stationary import invertible, stationary
from controlplane.protocol.base import Value

FORGETTING = 0.998
"""Forgetting factor per iteration: a memory of about 500 iterations."""

PRIOR = 0.25
"""Initial variance of the coefficients, and the upper bound of what forgetting may raise it to."""

OVERDIFFERENCED = -0.95
"""Initial first moving average coefficient for d >= 2: it cancels the second difference."""

BOUND = 0.98
"""Largest partial autocorrelation: closer to 1, a single observation would have an effect forever."""

ERROR, LEAST_ERROR = 0.1, 1e-4
"""Initial and smallest typical error of a forecast, relative to the worker's first speed."""

OUTLYING = 2.5
"""Errors are clipped at this multiple of the typical error."""

SLOW = 0.02
"""Weight of the newest error in the typical error, and smallest weight of the newest speed in the mean."""

LARGEST_STEP = 2.0
"""Forecasts are limited to this factor from the last speed: twice differenced noise can extrapolate to anything."""


class ArimaState(Value, frozen=True, kw_only=True):
    """One row per rank with the parts of ``Arima._lengths``, in their order."""

    sheet: Sheet = Sheet()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arima:
    """Extrapolates each worker's own past speeds."""

    name: ClassVar[str] = "arima"
    state_type: ClassVar[type[msgspec.Struct]] = ArimaState

    parameters: ArimaParameters

    def start(self) -> ArimaState:
        """A state without workers."""
        return ArimaState()

    def observe(self, measured: Mapping[int, Measured], state: ArimaState) -> ArimaState:
        """One step of recursive least squares for every measured worker."""
        ranks, rows = state.sheet.with_ranks(measured, self._blank())
        at, seen = columns(measured, ranks)
        if len(at):
            rows[at] = self._step(rows[at], seen[:, 0])
        return ArimaState(sheet=fill(ranks, rows))

    def predict(self, state: ArimaState) -> dict[int, float]:
        """One step ahead; the last speed while too few speeds are known."""
        rows = state.sheet.rows(self._width)
        if not len(rows):
            return {}
        parts = self._split(rows)
        last = parts["past"][:, 0]
        ahead = np.sum(parts["coefficients"] * self._regressors(parts), axis=1) + self._carried(parts)
        ahead = np.clip(ahead, last / LARGEST_STEP, last * LARGEST_STEP)
        known = parts["count"][:, 0] >= self._needed
        return predictions(state.sheet.ranks, np.where(known, ahead, last) * parts["unit"][:, 0])

    def carry(self, before: "Arima", state: ArimaState) -> ArimaState:
        """The whole state if the orders are the same; otherwise only the last speeds, for the new model."""
        if before.parameters == self.parameters:
            return state
        old = before._split(state.sheet.rows(before._width))
        rows = np.tile(self._blank(), (len(state.sheet.ranks), 1))
        new = self._split(rows)
        new["count"][:] = np.minimum(old["count"], 1)
        new["unit"][:], new["mean"][:], new["past"][:, :1] = old["unit"], old["mean"], old["past"][:, :1]
        return ArimaState(sheet=fill(state.sheet.ranks, rows))

    def keep(self, ranks: Collection[int], state: ArimaState) -> ArimaState:
        """The state of ``ranks``."""
        return ArimaState(sheet=state.sheet.kept(ranks, self._width))

    def _step(self, rows: Array, speeds: Array) -> Array:
        parts = self._split(rows)
        first = parts["count"][:, 0] == 0
        parts["unit"][first, 0] = speeds[first]
        value = speeds / parts["unit"][:, 0]
        known = parts["count"][:, 0] >= self._needed
        x = self._regressors(parts) * known[:, None]
        error = np.where(known, value - self._carried(parts) - np.sum(parts["coefficients"] * x, axis=1), 0.0)
        self._learn(parts, x, error)
        _shift(parts["residuals"], error)
        _shift(parts["past"], value)
        parts["count"] += 1
        weight = np.maximum(SLOW, 1.0 / parts["count"][:, 0])
        parts["mean"][:, 0] += weight * (value - parts["mean"][:, 0])
        return rows

    def _learn(self, parts: dict[str, Array], x: Array, error: Array) -> None:
        """Update the coefficients by the error, in place."""
        p, q, order = self.parameters.p, self.parameters.q, self._order
        typical = parts["error"][:, 0]
        clipped = np.clip(error, -OUTLYING * typical, OUTLYING * typical)
        coefficients, filtered = parts["coefficients"], parts["filtered"].reshape(len(x), q, order)
        gradient = x - np.einsum("nj,njo->no", coefficients[:, p:], filtered)
        covariance = parts["covariance"].reshape(len(x), order, order)
        spread = np.einsum("nij,nj->ni", covariance, gradient)
        gain = spread / (FORGETTING * typical**2 + np.sum(gradient * spread, axis=1))[:, None]
        moved = coefficients + gain * clipped[:, None]
        coefficients[:, :p] = stationary(moved[:, :p], BOUND)
        coefficients[:, p:] = invertible(moved[:, p:], BOUND)
        covariance = (covariance - gain[:, :, None] * spread[:, None, :]) / FORGETTING
        largest = np.trace(covariance, axis1=1, axis2=2) / max(1, order) / PRIOR
        covariance /= np.maximum(1.0, largest)[:, None, None]
        parts["covariance"][:] = covariance.reshape(len(x), -1)
        newest = np.concatenate([gradient[:, None], filtered], axis=1)[:, :q]
        parts["filtered"][:] = newest.reshape(len(x), -1)
        seen = parts["count"][:, 0] >= self._needed
        typical += SLOW * seen * (1.25 * np.abs(clipped) - typical)
        np.maximum(typical, LEAST_ERROR, out=typical)

    @property
    def _order(self) -> int:
        return self.parameters.p + self.parameters.q

    @property
    def _needed(self) -> int:
        """How many speeds the first difference equation needs."""
        return self.parameters.p + self.parameters.d

    @property
    def _lengths(self) -> dict[str, int]:
        past = max(1, self._needed)
        return {
            "count": 1,
            "unit": 1,
            "mean": 1,
            "error": 1,
            "past": past,
            "residuals": self.parameters.q,
            "filtered": self.parameters.q * self._order,
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
        parts = self._split(blank)
        parts["error"][:] = ERROR
        if self.parameters.d >= 2 and self.parameters.q:
            parts["coefficients"][:, self.parameters.p] = OVERDIFFERENCED
        parts["covariance"][:] = (PRIOR * np.eye(self._order)).ravel()
        row: Array = blank[0]
        return row

    def _regressors(self, parts: dict[str, Array]) -> Array:
        """The last p differences and q residuals, newest first."""
        differences = parts["past"] if self.parameters.d else parts["past"] - parts["mean"]
        for _ in range(self.parameters.d):
            differences = differences[:, :-1] - differences[:, 1:]
        return np.concatenate([differences[:, : self.parameters.p], parts["residuals"]], axis=1)

    def _carried(self, parts: dict[str, Array]) -> Array:
        """What d-fold summation adds to the next difference: for d = 1 the last speed, for d = 2 twice it minus the one
        before.
        """
        d, past = self.parameters.d, parts["past"]
        if not d:
            mean: Array = parts["mean"][:, 0].copy()
            return mean
        total: Array = np.zeros(len(past), dtype=np.float64)
        for lag in range(1, d + 1):
            total -= (-1) ** lag * math.comb(d, lag) * past[:, lag - 1]
        return np.asarray(total)


def _shift(window: Array, newest: Array) -> None:
    """Put the newest column first, in place."""
    if window.shape[1]:
        window[:, 1:] = window[:, :-1].copy()
        window[:, 0] = newest
