"""Predictors side by side: scores, promotion, and the word to the operator when predictions are worth nothing."""

import random

import pytest

from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.prediction.interface import Measured
from controlplane.policies.prediction.panel import Tally, slowdown
from tests.policies.cluster import observe, request, resolve

SPEEDS = [1000.0, 1000.0, 500.0, 250.0]


def test_slowdown_is_the_iteration_time_over_the_least_possible_one() -> None:
    truth = {0: 100.0, 1: 50.0}
    assert slowdown({0: 2.0, 1: 1.0}, truth) == pytest.approx(1.0)
    # Even shares of 150 samples: 75 / 50 against 150 / 150 seconds.
    assert slowdown({0: 1.0, 1: 1.0}, truth) == pytest.approx(1.5)
    assert slowdown({0: -1.0, 1: float("nan")}, truth) == 1.0


def test_a_score_is_root_mean_squares_and_the_mean_slowdown() -> None:
    tally = Tally().plus({0: 103.0, 1: 46.0}, {0: 100.0, 1: 50.0}).plus({0: 100.0, 1: 50.0}, {0: 100.0, 1: 50.0})
    score = tally.score()
    assert score.iterations == 2
    assert score.rmse == pytest.approx((25 / 4) ** 0.5)
    assert score.relative == pytest.approx(((0.03**2 + 0.08**2) / 4) ** 0.5)
    assert score.slowdown == pytest.approx((1.03 / 149 * 150 + 1) / 2)


def test_every_predictor_is_scored_and_one_is_acted_upon_until_another_is_promoted() -> None:
    policy = resolve("batching", "lb-bsp-cpu", predictor="ema", shadows=["memoryless", "regression"], score_every=10)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    scored = []
    for iteration in range(32):
        of = SPEEDS if iteration % 20 < 10 else list(reversed(SPEEDS))
        state, decision = policy.decide(
            request(decision.shares),
            observe(of, decision.shares, iteration=iteration, communication_s=[0.0] * 4),
            state,
        )
        if decision.scores:
            scored.append((iteration, decision.acting, decision.scores))
    # The first iteration has no forecast to be compared with.
    assert [(iteration, acting) for iteration, acting, _ in scored] == [(10, "ema"), (20, "ema"), (30, "ema")]
    assert all(scores.keys() == {"ema", "memoryless", "regression"} for _, _, scores in scored)
    assert scored[-1][2]["memoryless"].slowdown < scored[-1][2]["ema"].slowdown
    promoted, acting, sentence = policy.learn(state, PredictorPromoted(predictor="memoryless", actor="ada"))
    assert (acting, sentence) == ("memoryless", "ada promoted memoryless: shares follow it instead of ema")
    _, decision = policy.decide(request(decision.shares), [], promoted)
    assert decision.acting == "memoryless"
    assert decision.reason.startswith("memoryless expects")


def test_only_those_that_observe_can_be_promoted_or_trained() -> None:
    policy = resolve("batching", "lb-bsp-cpu", predictor="ema")
    state, _ = policy.start(request({0: 64, 1: 64}), None)
    with pytest.raises(ValueError, match="found predictor narx, expected one of those that observe this job: ema"):
        policy.learn(state, PredictorPromoted(predictor="narx", actor="ada"))
    with pytest.raises(ValueError, match="ema has nothing to be trained"):
        policy.learn(state, PredictorTrained(predictor="ema", round=1, weights=b""))


def test_speeds_that_do_not_last_an_iteration_are_reported_as_unpredictable_until_they_last() -> None:
    chance = random.Random(1)
    policy = resolve("batching", "lb-bsp-cpu", predictor="memoryless", score_every=60)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    found = []
    for iteration in range(125):
        of = chance.sample(SPEEDS, 4) if iteration < 61 else SPEEDS
        seen = observe(of, decision.shares, iteration=iteration, communication_s=[0.0] * 4)
        state, decision = policy.decide(request(decision.shares), seen, state)
        found += [(iteration, finding) for finding in decision.findings]
    assert [(iteration, finding.kind, finding.open) for iteration, finding in found] == [
        (60, "prediction", True),
        (120, "prediction", False),
    ]
    assert found[0][1].sentence.startswith(
        "predictions keep missing: over 60 iterations the shares by memoryless would"
    )


def test_all_forget_a_worker_that_left() -> None:
    policy = resolve("batching", "lb-bsp-cpu", predictor="ema", shadows=["memoryless"])
    panel = policy.panel
    state = panel.observe({rank: Measured(speed=10.0) for rank in range(3)}, panel.start())
    assert panel.keep([1], state).forecasts == {"ema": {1: 10.0}, "memoryless": {1: 10.0}}
