import random
from typing import Any

import msgspec
import pytest

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import ImpossibleShares
from controlplane.policies.batching.lb_bsp_cpu import LbBspCpu
from controlplane.policies.batching.uniform import UniformState
from controlplane.policies.prediction.ema import EmaState
from tests.policies.cluster import COMMUNICATION_S, observe, request, resolve, train

SPEEDS = [1000.0, 1000.0, 500.0, 250.0]
EVEN = dict.fromkeys(range(4), 64)


def by_ema() -> LbBspCpu:
    policy: LbBspCpu = resolve("batching", "lb-bsp-cpu", predictor="ema")
    return policy


def knowing(policy: LbBspCpu, speeds: dict[int, float]) -> Any:
    """The state in which these are the averages."""
    states = msgspec.structs.replace(policy.panel.start().states, ema=EmaState(speeds=speeds))
    return policy.panel.keep(speeds, msgspec.structs.replace(policy.panel.start(), states=states))


def busy(rank: int, samples: int, busy_s: float) -> Observation:
    return Observation(rank=rank, iteration=0, samples=samples, compute_s=busy_s, communication_s=0.0, waiting_s=0.0)


def test_one_observation_balances_the_papers_cluster() -> None:
    policy = by_ema()
    seen = [busy(rank, 64, 64 / SPEEDS[rank]) for rank in range(4)]
    _, decision = policy.decide(request(EVEN), seen, policy.panel.start())
    assert decision == ShareDecision(
        shares={0: 93, 1: 93, 2: 47, 3: 23},
        reason=(
            "ema expects 250 samples/s of w3 and 1,000 samples/s of w0: w3 takes 23 (was 64) and w0 takes 93 (was 64) "
            "of 256 samples; the slowest should be busy 94 ms instead of 256 ms"
        ),
        speeds=dict(enumerate(SPEEDS)),
        predicted_s=0.094,
        acting="ema",
    )


def test_speed_counts_communication_but_not_waiting() -> None:
    policy = resolve("batching", "lb-bsp-cpu", predictor="memoryless")
    seen = [
        Observation(rank=0, iteration=0, samples=50, compute_s=0.0625, communication_s=0.0625, waiting_s=9.0),
        Observation(rank=1, iteration=0, samples=50, compute_s=0.09375, communication_s=0.03125, waiting_s=0.0),
    ]
    _, decision = policy.decide(request({0: 50, 1: 50}), seen, policy.panel.start())
    assert (decision.shares, decision.speeds) == ({0: 50, 1: 50}, {0: 400.0, 1: 400.0})


def test_before_anything_is_measured_shares_stay_as_they_are() -> None:
    decisions = train(by_ema(), SPEEDS, iterations=2)
    reason = "no speed has been measured yet: 256 samples stay as they are over 4 workers"
    assert decisions == [ShareDecision(shares=EVEN, reason=reason, acting="ema")] * 3


def test_a_worker_without_a_measured_speed_keeps_its_share_and_the_others_divide_the_rest() -> None:
    policy = by_ema()
    _, decision = policy.decide(request(EVEN), [busy(0, 64, 0.064), busy(1, 64, 0.128)], policy.panel.start())
    assert decision.shares == {0: 85, 1: 43, 2: 64, 3: 64}
    assert decision.predicted_s is None
    assert decision.reason == (
        "ema expects 500 samples/s of w1 and 1,000 samples/s of w0: w1 takes 43 (was 64) and w0 takes 85 (was 64) of "
        "256 samples; not measured yet: w2 64, w3 64"
    )


def test_an_unmeasured_worker_keeps_what_the_limits_leave_of_its_share() -> None:
    policy = by_ema()
    crowded = request({0: 10, 1: 10, 2: 80}, high=50)
    _, decision = policy.decide(crowded, [busy(0, 10, 0.1), busy(1, 10, 0.1)], policy.panel.start())
    assert decision.shares == {0: 25, 1: 25, 2: 50}


def test_where_the_others_could_not_take_the_rest_an_unmeasured_worker_counts_as_a_typical_one() -> None:
    limits = {0: (1, 40), 1: (1, 100), 2: (1, 100)}
    asked = ShareRequest(iteration=0, total=150, current={0: 50, 1: 50, 2: 50}, limits=limits)
    policy = by_ema()
    _, decision = policy.decide(asked, [busy(0, 50, 0.1)], policy.panel.start())
    assert decision.shares == {0: 40, 1: 55, 2: 55}


def test_every_worker_takes_at_least_one_sample_whatever_the_limits_are() -> None:
    policy = by_ema()
    _, decision = policy.start(request({0: 64, 1: 64}, low=0), knowing(policy, {0: 1e6, 1: 1.0}))
    assert decision.shares == {0: 127, 1: 1}


@pytest.mark.parametrize(
    "nothing",
    [busy(1, 0, 0.5), busy(1, 64, 0.0), busy(1, 64, float("inf")), busy(1, 64, float("nan")), busy(1, 9, 5e-324)],
)
def test_an_observation_without_a_speed_is_passed_over(nothing: Observation) -> None:
    policy = by_ema()
    state, decision = policy.decide(request({0: 64, 1: 64}), [busy(0, 64, 0.1), nothing], policy.panel.start())
    assert (state.states.ema, decision.shares) == (EmaState(speeds={0: 640.0}), {0: 64, 1: 64})


def test_a_worker_that_misses_an_iteration_is_predicted_from_what_was_known() -> None:
    policy = by_ema()
    _, decision = policy.decide(request({0: 64, 1: 64}), [], knowing(policy, {0: 300.0, 1: 100.0}))
    assert decision.shares == {0: 96, 1: 32}


def test_upper_limits_hold_the_fast_workers_and_are_named() -> None:
    policy = by_ema()
    _, decision = policy.start(request(EVEN, high=80), knowing(policy, dict(enumerate(SPEEDS))))
    assert decision.shares == {0: 80, 1: 80, 2: 64, 3: 32}
    assert decision.reason.endswith("; held by the upper limit: w0 80, w1 80")


def test_limits_that_forbid_the_global_batch_are_an_error() -> None:
    with pytest.raises(ImpossibleShares, match=r"upper limits sum to 200 \(w0 50, w1 50, w2 50, w3 50\)"):
        by_ema().start(request(EVEN, high=50), None)


def test_a_new_roster_keeps_the_speeds_of_those_who_stay() -> None:
    policy = by_ema()
    before = knowing(policy, {0: 300.0, 1: 100.0, 2: 500.0})
    state, decision = policy.start(request({0: 128, 1: 128}), before)
    assert (state, decision.shares) == (knowing(policy, {0: 300.0, 1: 100.0}), {0: 192, 1: 64})


def test_the_state_of_another_policy_is_not_taken_for_its_own() -> None:
    policy = by_ema()
    state, decision = policy.start(request(EVEN), UniformState())
    assert (state.states.ema, decision.shares) == (EmaState(), EVEN)


def test_the_loop_settles_within_two_samples_of_proportional_and_near_the_ideal_time() -> None:
    decisions = train(by_ema(), SPEEDS, iterations=30, noise=random.Random(7))
    ideal = [256 * speed / sum(SPEEDS) for speed in SPEEDS]
    assert all(abs(share - ideal[rank]) <= 2 for rank, share in decisions[-1].shares.items())
    balanced, even = (
        max(share / SPEEDS[rank] + COMMUNICATION_S for rank, share in shares.items())
        for shares in (decisions[-1].shares, EVEN)
    )
    assert balanced / even <= 0.40


def test_the_loop_follows_a_worker_that_becomes_fast() -> None:
    policy = by_ema()
    shares, state = EVEN, policy.start(request(EVEN), None)[0]
    for speeds in [SPEEDS] * 10 + [[1000.0] * 4] * 30:
        state, decision = policy.decide(request(shares), observe(speeds, shares), state)
        shares = decision.shares
    assert max(shares.values()) - min(shares.values()) <= 2
