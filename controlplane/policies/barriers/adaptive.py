"""``ratio: adaptive`` for A-BSP (ruling 20): small parts while the loss falls, full passes when only noise is left.

With a constant step, an update from half of the samples has a noise floor that a full one has not. The control plane
sees losses, not gradients, so it asks them: over the last ``WINDOW`` iterations, is the fall from the older half to the
newer one more than what their scatter explains? The ratio grows by a step where it is not, and shrinks where it is.
"""

import math
import statistics

import msgspec

WINDOW = 20
"""Iterations that are compared, half with half."""

LOWEST, STEP = 0.5, 0.05
"""The paper's ratio is where it begins; so much it changes at each comparison, up to 1."""

SIGNIFICANT = 2.0
"""A fall counts from so many standard errors of the difference on."""


class Noise(msgspec.Struct, kw_only=True):
    """Mean losses of the latest iterations, and the ratio that they led to."""

    iterations: list[int] = []
    sums: list[float] = []
    samples: list[int] = []
    """Sum of the losses and number of samples of each of ``iterations``."""
    ratio: float = LOWEST


def note_loss(noise: Noise, iteration: int, loss: float, samples: int) -> None:
    """A worker reported ``loss``, the mean over its samples. Each new iteration that begins is one more comparison."""
    if samples <= 0 or not math.isfinite(loss):
        return
    if iteration not in noise.iterations:
        if len(noise.iterations) == WINDOW:
            _compare(noise)
        noise.iterations.append(iteration)
        noise.sums.append(0.0)
        noise.samples.append(0)
        for series in (noise.iterations, noise.sums, noise.samples):
            del series[:-WINDOW]
    at = noise.iterations.index(iteration)
    noise.sums[at] += loss * samples
    noise.samples[at] += samples


def ratio_by_noise(noise: Noise) -> float:
    """The least part of an iteration that must be processed before it may be cut."""
    return noise.ratio


def _compare(noise: Noise) -> None:
    means = [total / samples for total, samples in zip(noise.sums, noise.samples, strict=True)]
    older, newer = means[: WINDOW // 2], means[WINDOW // 2 :]
    fall = statistics.fmean(older) - statistics.fmean(newer)
    scatter = math.sqrt((statistics.variance(older) + statistics.variance(newer)) / (WINDOW // 2))
    falls = fall > SIGNIFICANT * scatter
    noise.ratio = min(1.0, max(LOWEST, noise.ratio + (-STEP if falls else STEP)))
