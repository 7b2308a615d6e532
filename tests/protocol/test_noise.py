"""The gradient-noise scale from squared norms of a rank's own gradient and of the mean over all."""

import math

import numpy as np
import pytest

from controlplane.protocol.noise import LEAST, MOST, NoiseScale, combined

SIGNAL = np.full(400, 0.05)
"""The true gradient: its squared norm is 1."""


def measured(shares: list[int], deviation: float, iterations: int = 400, seed: int = 1) -> list[float | None]:
    """What each rank finds where a sample's gradient is ``SIGNAL`` with normal noise: ``400 deviation^2`` samples."""
    chance, batch = np.random.default_rng(seed), sum(shares)
    scales = [NoiseScale() for _ in shares]
    for _ in range(iterations):
        own = [SIGNAL + chance.normal(0.0, deviation / math.sqrt(share), len(SIGNAL)) for share in shares]
        mean = sum(share * each for share, each in zip(shares, own, strict=True)) / batch
        for scale, share, each in zip(scales, shares, own, strict=True):
            scale.add(float(each @ each), float(mean @ mean), share=share, batch=batch)
    return [each.samples for each in scales]


@pytest.mark.parametrize("shares", [[32, 32], [20, 12], [3, 17, 12], [1] * 16])
@pytest.mark.parametrize("deviation", [0.1, 0.3])
def test_every_rank_finds_the_scale_whatever_the_shares_are(shares: list[int], deviation: float) -> None:
    for found in measured(shares, deviation):
        assert found == pytest.approx(400 * deviation**2, rel=0.4)


@pytest.mark.parametrize("shares", [[32, 32], [60, 4], [3, 17, 44], [1] * 16])
@pytest.mark.parametrize("deviation", [0.05, 0.1, 0.3])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_all_ranks_together_find_it_more_closely(shares: list[int], deviation: float, seed: int) -> None:
    scales = {rank: found for rank, found in enumerate(measured(shares, deviation, seed=seed)) if found is not None}
    assert combined(scales, dict(enumerate(shares))) == pytest.approx(400 * deviation**2, rel=0.15)


def test_ranks_without_a_scale_or_a_share_count_nothing() -> None:
    assert combined({}, {0: 8, 1: 8}) is None
    assert combined({0: 5.0, 2: 7.0}, {0: 16, 1: 0}) is None
    assert combined({0: 5.0, 1: 9.0}, {0: 16, 1: 0, 2: 16}) == pytest.approx(5.0)
    assert combined({0: 5.0, 1: 5.0}, {0: 30, 1: 2}) == pytest.approx(5.0)


def test_noise_and_signal_are_without_bias() -> None:
    """Means of many estimates, of which each is from one iteration."""
    chance, shares, batch, rows = np.random.default_rng(3), [5, 27], 32, []
    for _ in range(2000):
        own = [SIGNAL + chance.normal(0.0, 0.5 / math.sqrt(share), len(SIGNAL)) for share in shares]
        mean = sum(share * each for share, each in zip(shares, own, strict=True)) / batch
        once = NoiseScale()
        once.add(float(own[0] @ own[0]), float(mean @ mean), share=5, batch=batch)
        rows.append((once._noise, once._signal))
    assert np.mean(rows, axis=0) == pytest.approx([400 * 0.25, 1.0], rel=0.05)


def test_gradients_scaled_by_a_loss_scaler_have_the_same_scale() -> None:
    scales = [NoiseScale(), NoiseScale()]
    for own, mean in zip(np.random.default_rng(4).uniform(2.0, 3.0, 50), [1.5] * 50, strict=True):
        for scale, factor in zip(scales, (1.0, 2.0**32), strict=True):
            scale.add(own * factor, mean * factor, share=8, batch=24)
    assert scales[0].samples == pytest.approx(scales[1].samples)


def test_too_little_data_shows_nothing() -> None:
    scale = NoiseScale()
    for count in range(LEAST):
        assert scale.samples is None
        scale.add(3.0, 2.0, share=8, batch=16)
        assert (scale.samples is None) == (count + 1 < LEAST)
    assert scale.samples == pytest.approx(16.0)


def test_what_is_no_measurement_changes_nothing() -> None:
    scale = NoiseScale()
    for _ in range(LEAST):
        scale.add(3.0, 2.0, share=8, batch=16)
        for own, mean, share in ((math.nan, 2.0, 8), (3.0, math.inf, 8), (3.0, 2.0, 0), (3.0, 2.0, 16)):
            scale.add(own, mean, share=share, batch=16)
    assert scale.samples == pytest.approx(16.0)


@pytest.mark.parametrize(("own", "mean"), [(4.0, 2.0), (4.0 - 1e-13, 2.0), (1.0, 2.0), (0.0, 0.0)])
def test_a_gradient_that_noise_hides_has_no_scale(own: float, mean: float) -> None:
    """The signal is 0 or below, or so near that the scale is no number worth showing; or the noise is below 0."""
    scale = NoiseScale()
    for _ in range(LEAST):
        scale.add(own, mean, share=8, batch=16)
    assert scale.samples is None or scale.samples <= MOST
    assert (own, mean) == (4.0 - 1e-13, 2.0) or scale.samples is None
