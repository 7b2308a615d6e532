"""A machine model fitted to a recorded run: time per share, drift and noise.

An iteration of x samples that begins at time t takes (a + b x) * level(t) * noise. a and b are fitted to the recorded
iterations, the level is the median residual in each interval of time, and the noise is drawn from the remaining
residuals. All machines of a run, and their exchanges with servers, draw from the same recorded iterations, since
machines that share a resource are slow at the same time, and an iteration lasts as long as the slowest.
"""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from controlplane.protocol.base import Count, Fraction, Seconds
from controlplane.protocol.spec import Part

DRAWN: Final = 4096
"""How many recorded iterations are drawn per worker; then they repeat."""

LEAST_SPREAD: Final = 0.1
"""Shares separate fixed time from time per sample only if they differ by this fraction of their mean."""

LEAST_RISE: Final = 1 / 3
"""Two iterations show the cost of a sample only if their shares differ by this fraction of the range of all shares."""

STRETCHES: Final = 100
"""The most intervals that a run is divided into for the level."""

PER_STRETCH: Final = 5
"""The fewest iterations per interval, so that its median is meaningful."""

Positive = Annotated[float, Meta(gt=0.0)]


class Sample(Part, frozen=True, kw_only=True):
    """One recorded iteration of one worker."""

    iteration: Count
    at_s: Seconds
    """When it began to compute, in seconds since the run began."""
    samples: Count
    compute_s: Seconds
    communication_s: Seconds
    total_s: Seconds
    cpu: Fraction
    memory: Fraction


class RecordedMachine(Part, frozen=True, kw_only=True, tag="recorded"):
    """The learned model of one worker's machine; level, CPU and memory are for equal intervals and then repeat."""

    fixed_s: Seconds
    each_s: Seconds
    level: tuple[Positive, ...]
    cpu: tuple[Fraction, ...]
    memory: tuple[Fraction, ...]
    step_s: Positive
    noise: tuple[Positive, ...]
    """Noise factors; each iteration draws one."""


class Recorded:
    """A simulated machine with this model."""

    __slots__ = ("_noise", "_spec", "interruptible")

    def __init__(self, spec: RecordedMachine, seed: int) -> None:
        self._spec = spec
        self._noise = draw(spec.noise, seed)
        self.interruptible = True

    def finish_s(self, samples: int, began_s: float, iteration: int) -> float:
        """When the samples will be processed."""
        spec = self._spec
        return began_s + (spec.fixed_s + samples * spec.each_s) * self._factor(began_s, iteration)

    def processed(self, samples: int, began_s: float, now_s: float, iteration: int) -> int:
        """Samples are processed one after another, after the fixed part."""
        factor, spec = self._factor(began_s, iteration), self._spec
        each_s = spec.each_s * factor
        if each_s == 0.0:
            return samples
        return max(0, min(samples, int((now_s - began_s - spec.fixed_s * factor) / each_s + 1e-9)))

    def load(self, at_s: float, samples: int) -> tuple[float, float]:
        """The readings at that time of the recorded run."""
        at = int(at_s / self._spec.step_s) % len(self._spec.level)
        return self._spec.cpu[at], self._spec.memory[at]

    def _factor(self, began_s: float, iteration: int) -> float:
        level = self._spec.level
        return level[int(began_s / self._spec.step_s) % len(level)] * self._noise[iteration % DRAWN]


def draw(recorded: Sequence[float], seed: int) -> list[float]:
    """``DRAWN`` of the values, one per recorded iteration.

    The same iterations for all ranks, and for machines and links, so that common slowdowns remain common.
    """
    places = (np.random.default_rng([seed, 53]).random(DRAWN) * len(recorded)).astype(np.int64)
    drawn: list[float] = np.array(recorded)[places].tolist()
    return drawn


def learn_machine(samples: Sequence[Sample], length_s: float) -> RecordedMachine:
    """Fit the model of one worker's machine to its iterations (at least one) in a run of ``length_s``."""
    fixed_s, each_s = _line(samples)
    factors = [sample.compute_s / max(1e-9, fixed_s + each_s * sample.samples) for sample in samples]
    stretches = max(1, min(STRETCHES, len(samples) // PER_STRETCH))
    step_s = max(1e-3, length_s / stretches)
    of_stretch = [min(stretches - 1, int(sample.at_s / step_s)) for sample in samples]
    level = _filled([[f for f, at in zip(factors, of_stretch, strict=True) if at == n] for n in range(stretches)])
    noise = [max(1e-6, factor / level[at]) for factor, at in zip(factors, of_stretch, strict=True)]
    return RecordedMachine(
        fixed_s=fixed_s,
        each_s=each_s,
        level=tuple(level),
        cpu=_means([sample.cpu for sample in samples], of_stretch, stretches),
        memory=_means([sample.memory for sample in samples], of_stretch, stretches),
        step_s=step_s,
        noise=tuple(noise),
    )


def _line(samples: Sequence[Sample]) -> tuple[float, float]:
    """The a >= 0 and b of t = a + b x, by the median of slopes; proportional if shares hardly differ.

    Shares rarely change, and pairs of almost equal shares show only noise: pairs count only if they differ by a
    fraction of the whole range.
    """
    x = np.array([sample.samples for sample in samples], dtype=float)
    t = np.array([sample.compute_s for sample in samples])
    proportional = 0.0, float(np.median(t / np.maximum(x, 1.0)))
    if len(x) < PER_STRETCH or x.std() < LEAST_SPREAD * max(1.0, x.mean()):
        return proportional
    half = len(x) // 2
    order = np.argsort(x, kind="stable")
    low, high = order[:half], order[-half:]
    rise = x[high] - x[low]
    significant = rise >= LEAST_RISE * (x.max() - x.min())
    each_s = float(np.median((t[high] - t[low])[significant] / rise[significant])) if significant.any() else 0.0
    fixed_s = float(np.median(t - each_s * x))
    return (fixed_s, each_s) if each_s > 0.0 and fixed_s >= 0.0 else proportional


def _filled(stretches: list[list[float]]) -> list[float]:
    """The median of each interval; an interval without records gets the previous one."""
    known = median(next(found for found in stretches if found))
    level = []
    for found in stretches:
        known = max(1e-6, median(found)) if found else known
        level.append(known)
    return level


def _means(values: Sequence[float], of_stretch: Sequence[int], stretches: int) -> tuple[float, ...]:
    whole = fmean(values)
    cut: list[list[float]] = [[] for _ in range(stretches)]
    for value, at in zip(values, of_stretch, strict=True):
        cut[at].append(value)
    return tuple(fmean(found) if found else whole for found in cut)
