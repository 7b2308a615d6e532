"""The guard's rule: what it calls harmful, harmless and unknown."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import Judgement
from controlplane.policies.guard.loss_forecast import GuardState, LossForecast, fitted
from controlplane.protocol.guard import Guard

BATCH = 256


def judged(before: Sequence[float], after: Sequence[float], **settings: float) -> list[Judgement]:
    """What it says of a change between these losses, one per global batch."""
    rule = LossForecast(Guard(**settings))  # type: ignore[arg-type]
    state, found = rule.start(), []
    for number, loss in enumerate([*before, *after]):
        if number == len(before):
            state, judgement = rule.relaxed(state)
            found += [judgement] if judgement is not None else []
        state, judgement = rule.observe(BATCH * (number + 1), loss, state)
        found += [judgement] if judgement is not None else []
    return found


def curve(count: int, slope: float, noise: float, seed: int, floor: float = 0.0) -> np.ndarray:
    """A power law of the samples above a floor, with log-normal noise."""
    x = np.arange(1, count + 1)
    return (floor + 2.0 * x**-slope) * np.exp(np.random.default_rng(seed).normal(0.0, noise, count))


curves = {
    "slope": st.floats(0.0, 1.0),
    "noise": st.floats(0.0, 0.3),
    "floor": st.floats(0.0, 1.0),
    "count": st.integers(60, 300),
    "seed": st.integers(0, 2**32 - 1),
}


@given(**curves | {"noise": st.floats(0.0, 0.03)})
def test_a_curve_that_continues_is_harmless(slope: float, noise: float, floor: float, count: int, seed: int) -> None:
    losses = curve(count + 100, slope, noise, seed, floor)
    (judgement,) = judged(losses[:count], losses[count:])
    assert (judgement.verdict, judgement.batches) == ("harmless", 48)


@pytest.mark.parametrize("noise", [0.1, 0.3, 1.0])
def test_of_noisy_curves_that_continue_few_are_called_harmful(noise: float) -> None:
    curves = [curve(160, 0.3, noise, seed) for seed in range(300)]
    verdicts = [judged(losses[:100], losses[100:])[0].verdict for losses in curves]
    assert verdicts.count("harmful") <= 6


@given(**curves, factor=st.floats(1.1, 100.0), late=st.integers(0, 10))
def test_a_loss_that_rises_beyond_the_noise_and_stays_is_found_in_time(
    slope: float, noise: float, floor: float, count: int, seed: int, factor: float, late: int
) -> None:
    losses = curve(count, slope, noise, seed, floor)
    level = losses[-60:].max() * math.exp(8 * noise)
    after = level * factor * np.exp(np.random.default_rng(seed + 1).normal(0.0, noise, 48))
    judgements = judged(losses, [*losses[-1:].repeat(late), *after])
    assert [each.verdict for each in judgements] == ["harmful"]
    (judgement,) = judgements
    assert judgement.batches <= 48
    assert judgement.measured is not None
    assert judgement.expected is not None
    assert judgement.limit is not None
    assert judgement.measured > judgement.limit > judgement.expected


def test_a_disturbance_that_passes_is_harmless() -> None:
    losses = curve(168, 0.5, 0.02, 1)
    losses[120:] *= 1 + 2.0 * np.exp(-np.arange(48) / 8)
    assert [each.verdict for each in judged(losses[:120], losses[120:])] == ["harmless"]


def test_the_reason_has_the_evidence() -> None:
    before = [1.0, 1.1, 0.9] * 20
    (judgement,) = judged(before, [2.0] * 24)
    assert judgement.reason == (
        "24 global batches after the change, the training loss is 2; 0.9997 was expected from the batches before it,"
        " and more than 1.212 counts as harm"
    )


@pytest.mark.parametrize("level", [1e-6, 1.0, 4e8, 1e90])
@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e300])
def test_a_loss_that_is_no_number_is_harmful_whatever_the_losses_before(loss: float, level: float) -> None:
    (judgement,) = judged([level] * 60, [loss] * 24)
    assert (judgement.verdict, judgement.measured, judgement.batches) == ("harmful", None, 4)
    assert "is not a number, or a million times as large" in judgement.reason


@given(level=st.floats(1e-8, 1e95), losses=st.lists(st.floats(0.3, 3.0), min_size=108, max_size=108))
def test_the_unit_of_the_loss_does_not_matter(level: float, losses: list[float]) -> None:
    verdicts = [
        [judgement.verdict for judgement in judged([unit * x for x in losses[:60]], [unit * x for x in losses[60:]])]
        for unit in (1.0, level)
    ]
    assert verdicts[0] == verdicts[1]


def test_one_loss_that_was_no_number_before_a_change_hides_no_harm_of_large_losses() -> None:
    (judgement,) = judged([4e8] * 30 + [math.nan] + [4e8] * 30, [4e9] * 48)
    assert judgement.verdict == "harmful"


@pytest.mark.parametrize("loss", [0.0, 1e-300, -100.0])
def test_losses_that_have_no_logarithm_are_not_judged(loss: float) -> None:
    (judgement,) = judged([1.0] * 30 + [loss] * 30, [-50.0] * 48)
    assert (judgement.verdict, judgement.batches) == ("unknown", 0)
    assert "losses of at most 1e-09 were reported" in judgement.reason


def test_held_out_losses_that_have_no_logarithm_are_left_out() -> None:
    (judgement,) = scored([-1.0] * 60, [-1.0] * 48, noise=0.1)
    assert judgement.verdict == "harmless"
    assert "the training loss is" in judgement.reason


def scored(before: Sequence[float], after: Sequence[float], noise: float, every: int = 1) -> list[Judgement]:
    """What it says of these held-out losses, where those of training are noise."""
    rule, chance = LossForecast(Guard()), np.random.default_rng(5)
    state, found = rule.start(), []
    for number, loss in enumerate([*before, *after]):
        if number == len(before):
            state, _ = rule.relaxed(state)
        if number % every == 0:
            state = rule.evaluated(loss, state)
        state, judgement = rule.observe(BATCH * (number + 1), math.exp(chance.normal(0.0, noise)), state)
        found += [judgement] if judgement is not None else []
    return found


@pytest.mark.parametrize("every", [1, 5])
def test_a_small_harm_that_the_noise_of_training_hides_is_found_in_evaluations(every: int) -> None:
    losses = curve(168, 0.3, 0.005, 3)
    stays = losses[100:120].mean() * curve(48, 0.0, 0.005, 4) / 2.0
    (judgement,) = scored(losses[:120], 1.2 * stays, noise=0.5, every=every)
    assert judgement.verdict == "harmful"
    assert judgement.batches <= 30
    assert "the held-out loss is" in judgement.reason
    (judgement,) = scored(losses[:120], losses[120:], noise=0.5, every=every)
    assert (judgement.verdict, judgement.batches) == ("harmless", 48)
    assert "the training loss is" in judgement.reason


def test_few_evaluations_are_no_forecast() -> None:
    assert [each.verdict for each in scored([1.0] * 60, [3.0] * 48, noise=0.3, every=7)] == ["harmless"]


def test_a_held_out_loss_that_is_no_number_is_harmful() -> None:
    (judgement,) = scored([1.0] * 60, [math.nan] * 48, noise=0.3)
    assert (judgement.verdict, judgement.batches) == ("harmful", 24)


def test_bursts_count_by_what_they_cost() -> None:
    """Every fourth batch has four times the loss, the others a third less: their logarithms have the mean of before."""
    losses = curve(108, 0.0, 0.05, 2)
    after = losses[60:] * np.tile([4.0, 0.63, 0.63, 0.63], 12)
    (judgement,) = judged(losses[:60], after)
    assert judgement.verdict == "harmful"
    assert judgement.batches <= 48


def test_a_state_without_scores_is_continued() -> None:
    """As a snapshot of an earlier release has it."""
    rule = LossForecast(Guard())
    state = GuardState(samples=(1.0, 2.0), losses=(0.0, 0.0))
    state, _ = rule.observe(20, 1.0, state)
    assert state.scores == (None, None, None)


def test_too_few_batches_before_a_change_are_reported() -> None:
    (judgement,) = judged([1.0] * 59, [9.0] * 100)
    assert (judgement.verdict, judgement.batches) == ("unknown", 0)
    assert "only 59 global batches were measured" in judgement.reason


@pytest.mark.parametrize("losses", [[1e-8] * 60, [5.0] * 60, [1e99] * 60])
def test_losses_without_spread_have_a_forecast(losses: list[float]) -> None:
    assert [each.verdict for each in judged(losses, losses[:48])] == ["harmless"]


def test_a_further_relaxation_is_compared_with_what_was_before_the_first() -> None:
    rule = LossForecast(Guard())
    state = rule.start()
    for number in range(60):
        state, _ = rule.observe(number + 1, 1.0, state)
    state, _ = rule.relaxed(state)
    for number in range(60, 70):
        state, _ = rule.observe(number + 1, 1.0, state)
    again, judgement = rule.relaxed(state)
    assert (again.forecast, again.excess, judgement) == (state.forecast, (), None)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200))
def test_its_state_is_bounded(losses: list[float]) -> None:
    rule = LossForecast(Guard())
    state: GuardState = rule.start()
    for number, loss in enumerate(losses):
        state, _ = rule.observe(number + 1, loss, state)
        if number % 70 == 69:
            state, _ = rule.relaxed(state)
        assert len(state.samples) == len(state.losses) <= 60
        assert len(state.excess) <= 48


@given(st.floats(0, 2), st.floats(-5, 5), st.integers(2, 60))
def test_the_line_through_points_on_a_rising_line_is_that_line(slope: float, level: float, count: int) -> None:
    x = [math.log(k + 1) for k in range(count)]
    found = fitted(x, [level + slope * each for each in x])
    assert found.slope == pytest.approx(slope, abs=1e-9)
    assert found.level == pytest.approx(level + slope * x[-1], abs=1e-9)
    assert found.deviation == pytest.approx(0.0, abs=1e-6)
