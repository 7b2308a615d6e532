"""Keeps the coefficients of an autoregression stationary, so that forecasts do not diverge.

Coefficients are stationary if and only if all partial autocorrelations are between -1 and 1 (Barndorff-Nielsen and
Schou, 1973). So coefficients are converted to partial autocorrelations, bounded, and converted back (Levinson and
Durbin), for all workers at once.
"""

import numpy as np

from controlplane.policies.prediction.sheet import Array


def stationary(coefficients: Array, bound: float) -> Array:
    """(n, p) coefficients with partial autocorrelations bounded by ``bound``; rows within the bound do not change."""
    part, partial = coefficients, []
    for order in range(coefficients.shape[1], 0, -1):
        last = np.clip(part[:, order - 1 :], -bound, bound)
        part = (part[:, : order - 1] + last * part[:, order - 2 :: -1][:, : order - 1]) / (1.0 - last**2)
        partial.append(last)
    bounded = coefficients[:, :0]
    for last in reversed(partial):
        bounded = np.concatenate([bounded - last * bounded[:, ::-1], last], axis=1)
    return bounded


def invertible(coefficients: Array, bound: float) -> Array:
    """The same for a moving average: it is invertible if its negative is stationary."""
    return -stationary(-coefficients, bound)
