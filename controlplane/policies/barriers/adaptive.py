"""``ratio: adaptive`` for A-BSP (ruling 20): small parts while the loss falls, full passes when only noise is left.

With a constant step size, updates from half of the samples have a higher noise floor than full ones. The control plane
sees losses, not gradients, so it compares losses: over the last ``WINDOW`` iterations, is the decrease from the older
half to the newer one significant against their scatter? If not, the ratio grows by a step; otherwise it shrinks by one.
"""

import math
import statistics

import msgspec

WINDOW = 20
"""Number of iterations whose older and newer halves are compared."""

LOWEST, STEP = 0.5, 0.05
"""The initial ratio is the paper's; each comparison changes it by ``STEP``, up to 1."""

SIGNIFICANT = 2.0
"""A decrease is significant from this many standard errors of the difference on."""


class Noise(msgspec.Struct, kw_only=True):
    """Losses of the latest iterations, and the resulting ratio."""

    iterations: list[int] = []
    sums: list[float] = []
    samples: list[int] = []
    """Sum of the losses and number of samples of each of ``iterations``."""
    ratio: float = LOWEST


def note_loss(noise: Noise, iteration: int, loss: float, samples: int) -> None:
    """Add ``loss``, the mean over a worker's samples. Each new iteration triggers a comparison."""
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
    """The smallest fraction of an iteration that must be processed before it may be cut short."""
    return noise.ratio


def _compare(noise: Noise) -> None:
    means = [total / samples for total, samples in zip(noise.sums, noise.samples, strict=True)]
    older, newer = means[: WINDOW // 2], means[WINDOW // 2 :]
    fall = statistics.fmean(older) - statistics.fmean(newer)
    scatter = math.sqrt((statistics.variance(older) + statistics.variance(newer)) / (WINDOW // 2))
    falls = fall > SIGNIFICANT * scatter
    noise.ratio = min(1.0, max(LOWEST, noise.ratio + (-STEP if falls else STEP)))
