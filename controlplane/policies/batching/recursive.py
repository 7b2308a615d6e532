"""The line t = a + b x of one worker's compute time over its share, fitted recursively and robustly.

Uses weighted means and moments, discounted by 0.98 per iteration. The slope is regularized towards the last one, more
strongly with noisier times, since constant shares give no information about it. A single outlier has little weight; a
second slow outlier in a row, or a third fast one, is a new speed: the line is scaled to it and fitted again.
"""

import math

import msgspec

from controlplane.core.choices import Observation
from controlplane.policies.batching.min_max import Line
from controlplane.protocol.base import Value

SMOOTHING = 0.2
"""Weight of the latest communication time, and of the latest error in the typical error."""

FIRST_ERROR, LEAST_ERROR = 0.05, 0.01
"""Initial and smallest relative error: clocks and kernels are never more accurate."""

OUTLYING = 4.0
"""An error above this multiple of the typical one is an outlier."""

SLOWER, FASTER = 2, 3
"""This many outliers in a row on one side are a new speed. FASTER is larger because a worker whose speed is
overestimated delays all others.
"""

KNOWN = 5.0
"""From this weight of its points a line is known, and a deviation is more likely an outlier than a new line."""

UNCERTAIN = 0.3
"""Prior standard deviation of the slope around the last slope, relative to t / x."""

LEAST_SLOPE = 0.02
"""Smallest slope, relative to t / x: every sample takes some time."""

RECENT = 5
"""Number of communication times in the smoothing median."""


class Fit(Value, frozen=True, kw_only=True):
    """Weight, means and moments of past points, and the fitted line."""

    weight: float
    share: float
    compute_s: float
    spread: float = 0.0
    covariance: float = 0.0
    slope: float
    error: float = FIRST_ERROR
    """Typical relative error."""
    bias: float = 0.0
    """Mean of the latest relative errors: near 0 where the worker's speed is steady."""
    odd: int = 0
    """Outliers in a row: positive if too slow, negative if too fast."""
    communication_s: float
    recent: tuple[float, ...] = ()
    """The last communication times."""

    @property
    def line(self) -> Line:
        """Busy seconds as a function of the share: compute plus communication."""
        begin = max(0.0, self.compute_s - self.slope * self.share)
        return Line(begin=begin + self.communication_s, per_sample=self.slope)


def is_sound(seen: Observation) -> bool:
    """Whether the observation has a compute time."""
    times = (seen.compute_s, seen.communication_s)
    return seen.samples > 0 and all(math.isfinite(time) and 0 <= time < 1e9 for time in times) and seen.compute_s > 1e-9


def observe(fit: Fit | None, seen: Observation, forgetting: float) -> Fit:
    """The fit with one more point."""
    if fit is None:
        return Fit(
            weight=1.0,
            share=float(seen.samples),
            compute_s=seen.compute_s,
            slope=seen.compute_s / seen.samples,
            communication_s=seen.communication_s,
            recent=(seen.communication_s,),
        )
    expected = fit.compute_s + fit.slope * (seen.samples - fit.share)
    error = seen.compute_s / expected - 1.0
    communication_s, recent = _communication(fit, seen)
    most = OUTLYING * fit.error
    fit = msgspec.structs.replace(fit, bias=fit.bias + SMOOTHING * (min(max(error, -most), most) - fit.bias))
    if abs(error) <= most:
        typical = max(LEAST_ERROR, fit.error + SMOOTHING * (1.25 * abs(error) - fit.error))
        return _add(fit, seen, 1.0, forgetting, error=typical, odd=0, communication_s=communication_s, recent=recent)
    side = 1 if error > 0 else -1
    odd = fit.odd + side if fit.odd * side >= 0 else side
    if odd >= SLOWER or odd <= -(FASTER if fit.weight > KNOWN else SLOWER):
        return _rescaled(fit, seen, seen.compute_s / expected, communication_s, recent)
    weight = most / abs(error)
    if fit.weight > KNOWN:
        # An outlier moves the line up or down a little, but does not change the slope: a single far-off point would
        # turn it.
        seen = msgspec.structs.replace(seen, samples=round(fit.share), compute_s=fit.compute_s * (1.0 + error))
    return _add(fit, seen, weight, forgetting, error=fit.error, odd=odd, communication_s=communication_s, recent=recent)


def _communication(fit: Fit, seen: Observation) -> tuple[float, tuple[float, ...]]:
    """Communication time smoothed by the median of the last five, so that two outliers have little effect."""
    recent = (*fit.recent, seen.communication_s)[-RECENT:]
    middle = sorted(recent)[(len(recent) - 1) // 2]
    if len(recent) < RECENT or len(fit.recent) < RECENT:
        return middle, recent
    return fit.communication_s + SMOOTHING * (middle - fit.communication_s), recent


def _rescaled(fit: Fit, seen: Observation, ratio: float, communication_s: float, recent: tuple[float, ...]) -> Fit:
    """The same machine at another speed: scale both coefficients of the line until more is known."""
    slope = _bounded(fit.slope * ratio, seen.compute_s / seen.samples)
    return Fit(
        weight=1.0,
        share=float(seen.samples),
        compute_s=seen.compute_s,
        slope=slope,
        error=max(fit.error, FIRST_ERROR),
        communication_s=communication_s,
        recent=recent,
    )


def _add(
    fit: Fit,
    seen: Observation,
    weight: float,
    forgetting: float,
    *,
    error: float,
    odd: int,
    communication_s: float,
    recent: tuple[float, ...],
) -> Fit:
    old = fit.weight * forgetting
    whole = old + weight
    off, late = seen.samples - fit.share, seen.compute_s - fit.compute_s
    share, compute_s = fit.share + off * weight / whole, fit.compute_s + late * weight / whole
    spread = fit.spread * forgetting + weight * off * (seen.samples - share)
    covariance = fit.covariance * forgetting + weight * off * (seen.compute_s - compute_s)
    # Precision of the last slope in units of the points' precision: (noise of t)^2 / (uncertainty of b)^2.
    prior = (error / UNCERTAIN * share) ** 2
    slope = _bounded((covariance + prior * fit.slope) / (spread + prior), compute_s / share)
    return Fit(
        weight=whole,
        share=share,
        compute_s=compute_s,
        spread=spread,
        covariance=covariance,
        slope=slope,
        error=error,
        bias=fit.bias,
        odd=odd,
        communication_s=communication_s,
        recent=recent,
    )


def _bounded(slope: float, ratio: float) -> float:
    """Above 0, and at most t / x: a line through the point with a >= 0."""
    return min(max(slope, LEAST_SLOPE * ratio), ratio)
