"""The time of an exchange with a server as a function of its size (PSLD section 4.1): Pred(r, s) = alpha_r s + beta_r.

Each server has a line, fitted by least squares to all workers' measurements; older ones have less weight. Only weighted
moments are kept, so the size of the state does not depend on the number of measurements. The standard error of a
prediction is that of the line's mean at ``s``: it grows with the distance from the measured sizes.

Measurements of a single size cannot separate latency from bandwidth, and with noise a line may have a negative slope or
intercept. In both cases time is assumed to be proportional to size.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controlplane.core.choices import Transfer
from controlplane.policies.placement.loads import MEBIBYTE
from controlplane.protocol.base import Value

ENOUGH = 3
"""A line has two parameters: with fewer measurements its error is unknown."""


class Moments(Value, frozen=True, kw_only=True, array_like=True):
    """Weighted moments of sizes (in MiB) and seconds of the exchanges with one server."""

    iteration: int = -1
    """Iteration of the latest measurement."""
    weight: float = 0.0
    squares: float = 0.0
    """Sum of squared weights, for the effective number of measurements."""
    size: float = 0.0
    seconds: float = 0.0
    size_size: float = 0.0
    size_seconds: float = 0.0
    seconds_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The model of one server. ``alpha`` is in seconds per MiB, ``beta`` in seconds."""

    alpha: float
    beta: float
    variance: float = 0.0
    """Variance of a single measurement around the line; infinite if there are too few."""
    measured: float = 0.0
    """The effective number of measurements."""
    center: float = 0.0
    """Mean size of the measurements in MiB."""
    spread: float = 0.0
    """Variance of the sizes; 0 if time is assumed to be proportional to size."""

    def mean(self, size: float) -> float:
        """Pred_mean for ``size`` bytes, in seconds."""
        return self.alpha * size / MEBIBYTE + self.beta

    def error(self, size: float) -> float:
        """Pred_SEM for ``size`` bytes; equal to the mean if there are too few measurements."""
        if not math.isfinite(self.variance):
            return self.mean(size)
        at = size / MEBIBYTE
        if self.spread > 0:
            return math.sqrt(self.variance / self.measured * (1 + (at - self.center) ** 2 / self.spread))
        return math.sqrt(self.variance / self.measured) * at / self.center

    def lower(self, size: float, z: float) -> float:
        """Lower confidence bound."""
        return self.mean(size) - z * self.error(size)

    def upper(self, size: float, z: float) -> float:
        """Upper confidence bound."""
        return self.mean(size) + z * self.error(size)


def remember(moments: Mapping[int, Moments], transfers: Iterable[Transfer], *, forgetting: float) -> dict[int, Moments]:
    """Add transfers to the moments. Impossible times and sizes are ignored."""
    known = dict(moments)
    usable = (seen for seen in transfers if seen.bytes > 0 and math.isfinite(seen.seconds) and seen.seconds > 0)
    for seen in sorted(usable, key=lambda seen: (seen.iteration, seen.server, seen.rank, seen.bytes, seen.seconds)):
        before = known.get(seen.server, Moments())
        known[seen.server] = _add(_fade(before, seen.iteration, forgetting), seen)
    return known


def fit(moments: Moments) -> Line | None:
    """The line through the measurements; None if there are none."""
    if moments.weight <= 0:
        return None
    measured = moments.weight**2 / moments.squares
    # Sizes that differ by less than a thousandth give no information about a slope.
    spread = moments.size_size / moments.weight
    if spread > (1e-3 * moments.size) ** 2:
        alpha = moments.size_seconds / moments.size_size
        beta = moments.seconds - alpha * moments.size
        if alpha > 0 and beta >= 0:
            return _line(moments, alpha, beta, measured, spread)
    return _line(moments, moments.seconds / moments.size, 0.0, measured, 0.0)


def lines_of(moments: Mapping[int, Moments], servers: Sequence[int]) -> dict[int, Line]:
    """A line for each server; one that was never measured gets the average of the others (PSLD section 5.1).

    Empty if none was measured.
    """
    fitted = {server: fit(moments.get(server, Moments())) for server in sorted(servers)}
    known = [line for line in fitted.values() if line is not None]
    if not known:
        return {}
    usual = average(known)
    return {server: line if line is not None else usual for server, line in fitted.items()}


def average(lines: Sequence[Line]) -> Line:
    """The prediction for a new server, with infinite uncertainty: the mean of their performance (PSLD section 5.1).

    Performance is bytes per second (section 2.3). The mean of times per byte would be dominated by slow servers: with
    six of eight servers at a tenth of the speed it predicts a 2.5 times lower performance, and no servers are
    requested.
    """
    speeds = [1 / line.alpha for line in lines if line.alpha > 0]
    return Line(
        alpha=len(speeds) / sum(speeds) if speeds else 0.0,
        beta=sum(line.beta for line in lines) / len(lines),
        variance=math.inf,
    )


def exchange_s(lines: Mapping[int, Line], loads: Mapping[int, int]) -> float:
    """How long a worker's parallel exchange with all servers takes: the time of the slowest server that has blocks."""
    return max((lines[server].mean(load) for server, load in loads.items() if load > 0), default=0.0)


def _fade(moments: Moments, iteration: int, forgetting: float) -> Moments:
    if moments.iteration < 0:
        return Moments(iteration=iteration)
    kept = forgetting ** max(0, iteration - moments.iteration)
    return Moments(
        iteration=max(iteration, moments.iteration),
        weight=moments.weight * kept,
        squares=moments.squares * kept**2,
        size=moments.size,
        seconds=moments.seconds,
        size_size=moments.size_size * kept,
        size_seconds=moments.size_seconds * kept,
        seconds_seconds=moments.seconds_seconds * kept,
    )


def _add(moments: Moments, seen: Transfer) -> Moments:
    """Welford's update with weights."""
    weight = moments.weight + 1.0
    size = seen.bytes / MEBIBYTE
    away, late = size - moments.size, seen.seconds - moments.seconds
    rest = moments.weight / weight
    return Moments(
        iteration=moments.iteration,
        weight=weight,
        squares=moments.squares + 1.0,
        size=moments.size + away / weight,
        seconds=moments.seconds + late / weight,
        size_size=moments.size_size + away * away * rest,
        size_seconds=moments.size_seconds + away * late * rest,
        seconds_seconds=moments.seconds_seconds + late * late * rest,
    )


def _line(moments: Moments, alpha: float, beta: float, measured: float, spread: float) -> Line:
    around = moments.seconds_seconds - 2 * alpha * moments.size_seconds + alpha**2 * moments.size_size
    unknowns = 2 if spread > 0 else 1
    variance = math.inf
    if measured >= ENOUGH:
        variance = max(0.0, around) / moments.weight * measured / (measured - unknowns)
    return Line(alpha=alpha, beta=beta, variance=variance, measured=measured, center=moments.size, spread=spread)
