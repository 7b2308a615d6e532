"""The gradient noise scale: the number of samples whose mean gradient has as much noise as signal.

McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), appendix A.1. The squared norm of a mean
gradient over ``b`` samples is ``|G|^2 + tr(S) / b`` in expectation, with the true gradient ``G`` and the covariance
``S`` of one sample's. A rank has its own mean over ``b`` samples and the mean over all ``B``, of which its own are a
part. So, for any shares, both without bias::

    tr(S) = (|own|^2 - |mean|^2) / (1/b - 1/B)
    |G|^2 = (B |mean|^2 - b |own|^2) / (B - b)

The scale is ``tr(S) / |G|^2``. Both are noisy, so each is smoothed, and the scale is the ratio of the smoothed values:
a mean of ratios would be too large.
"""

import math
from collections.abc import Mapping
from typing import Final

EVERY: Final = 8
"""It is measured in every n-th iteration: two passes over the gradients."""

SMOOTHING: Final = 0.05
"""Weight of the newest measurement."""

LEAST: Final = 10
"""Measurements before the first value."""

MOST: Final = 1e12
"""Maximum in samples; above it, the gradient cannot be distinguished from zero."""


class NoiseScale:
    """The estimate of one rank."""

    def __init__(self) -> None:
        self._count = 0
        self._noise = self._signal = 0.0
        """``tr(S)`` and ``|G|^2``, smoothed."""

    def add(self, own: float, mean: float, *, share: int, batch: int) -> None:
        """One iteration: squared norms of this rank's mean gradient over ``share`` samples, and of that over all."""
        if not (math.isfinite(own) and math.isfinite(mean) and 0 < share < batch):
            return
        noise = (own - mean) / (1.0 / share - 1.0 / batch)
        signal = (batch * mean - share * own) / (batch - share)
        weight = max(SMOOTHING, 1.0 / (self._count + 1))
        self._noise += weight * (noise - self._noise)
        self._signal += weight * (signal - self._signal)
        self._count += 1

    @property
    def samples(self) -> float | None:
        """The scale; None: too few measurements, or noise hides the gradient."""
        if self._count < LEAST or self._signal <= 0.0 or self._noise < 0.0:
            return None
        scale = self._noise / self._signal
        return scale if scale <= MOST else None


def combined(scales: Mapping[int, float], shares: Mapping[int, int]) -> float | None:
    """Combine the scales that ranks report, by rank; None: no rank reports one.

    A rank's value depends on the direction of its own gradient, the more the larger its share is. In units of
    ``|mean|^2``, and with weights ``1 - b / B``, this cancels between ranks: the sum of ``b |own - mean|^2`` remains.
    """
    batch = sum(shares.values())
    weights = {rank: 1.0 - shares[rank] / batch for rank in scales if 0 < shares.get(rank, 0) < batch}
    if not weights:
        return None
    noise = {rank: scales[rank] / (scales[rank] + batch) for rank in weights}  # tr(S) / B of |mean|^2
    part = math.fsum(weights[rank] * noise[rank] for rank in weights) / math.fsum(weights.values())
    return min(batch * part / (1.0 - part), MOST) if part < 1.0 else MOST
