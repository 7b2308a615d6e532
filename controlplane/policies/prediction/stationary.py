"""Keeps the coefficients of an autoregression where its forecasts do not run away.

Coefficients are stationary exactly where all their partial autocorrelations lie within -1 and 1 (Barndorff-Nielsen and
Schou, 1973). So they are turned into those, bounded, and turned back (Levinson and Durbin), all workers at once.
"""

import numpy as np

from controlplane.policies.prediction.sheet import Array


def stationary(coefficients: Array, bound: float) -> Array:
    """(n, p) coefficients of autoregressions whose partial autocorrelations are at most ``bound``; others stay."""
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
    """The same for a moving average: it is invertible where its negative is stationary."""
    return -stationary(-coefficients, bound)
