"""One or two arbitrary reports among steady ones: what they may cost, for every batching policy and predictor."""

import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Observation, ShareDecision
from controlplane.policies import registry
from tests.policies.cluster import observe, request, resolve
from tests.support.examples import examples

SPEEDS = [1000.0, 800.0, 500.0, 250.0]
COMMUNICATION_S = 0.004

STEADY = 40
"""Iterations before the odd report."""

WORST = 2.5
"""No iteration takes so many times as long as the one before the odd report: a speed counts for twice at most."""

RECOVERY = 12
"""Iterations after which it costs a tenth at most: an average with weight 0.2 has forgotten 93 % by then."""

RECOVERY_FROM_TWO = 20
"""The same after the second of two: ``lb-bsp-linear`` takes them for a new speed."""

POLICIES = [
    *((name, {}) for name in registry.names("batching") if name not in ("lb-bsp-cpu", "deadline")),
    *(
        (batching, {"predictor": predictor})
        for batching in ("lb-bsp-cpu", "deadline")
        for predictor in registry.names("prediction")
    ),
]

durations = st.sampled_from([1e-9, 1e-6, 1e9, 1e8, 0.0]) | st.floats(1e-9, 1e9)


def iteration_s(shares: dict[int, int]) -> float:
    return max(share / SPEEDS[rank] + COMMUNICATION_S for rank, share in shares.items())


EACH_POLICY = pytest.mark.parametrize(
    ("name", "parameters"), POLICIES, ids=lambda each: each if isinstance(each, str) else "-".join(each.values())
)


def trained_with(
    name: str, parameters: dict[str, Any], *, iterations: int, **odd: Any
) -> tuple[list[float], ShareDecision]:
    """How long each iteration takes while one worker gives the odd report at each of the iterations ``at``."""
    policy = resolve("batching", name, **parameters)
    at, rank = odd.pop("at"), odd.pop("rank")
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    took = []
    for iteration in range(iterations):
        took.append(iteration_s(decision.shares))
        seen = observe(SPEEDS, decision.shares, iteration=iteration)
        if iteration in at:
            seen[rank] = Observation(rank=rank, iteration=iteration, waiting_s=0.0, **odd)
        state, decision = policy.decide(request(decision.shares, iteration=iteration + 1), seen, state)
    return took, decision


@EACH_POLICY
@settings(max_examples=examples(20), deadline=None)
@given(
    rank=st.integers(0, 3),
    compute_s=durations,
    communication_s=durations,
    samples=st.integers(0, 256),
    at=st.sampled_from([0, 1, 2, 3, STEADY]),
)
@example(rank=3, compute_s=1e-9, communication_s=0.0, samples=64, at=STEADY)
@example(rank=0, compute_s=1e9, communication_s=1e8, samples=64, at=STEADY)
@example(rank=3, compute_s=1e-9, communication_s=0.0, samples=64, at=0)
@example(rank=0, compute_s=1e9, communication_s=0.0, samples=64, at=1)
def test_one_arbitrary_report_costs_little_and_not_for_long(
    name: str, parameters: dict[str, Any], at: int, **odd: Any
) -> None:
    took, decision = trained_with(name, parameters, iterations=at + RECOVERY + 8, at={at}, **odd)
    before = took[at] if at == STEADY else took[0]
    # Of a worker's first reports nothing tells which is the odd one until there are three.
    assert max(took[at + (1 if at >= 3 else 3) :]) <= WORST * before
    assert max(took[at + RECOVERY :]) <= 1.1 * before
    assert all(math.isfinite(speed) for speed in decision.speeds.values())


@EACH_POLICY
@settings(max_examples=examples(10), deadline=None)
@given(
    rank=st.integers(0, 3),
    compute_s=durations,
    communication_s=durations,
    samples=st.integers(0, 256),
    apart=st.sampled_from([1, 2]),
)
@example(rank=3, compute_s=1e-9, communication_s=0.0, samples=64, apart=1)
@example(rank=3, compute_s=1e-9, communication_s=0.0, samples=64, apart=2)
@example(rank=3, compute_s=1e-3, communication_s=0.0, samples=64, apart=2)
@example(rank=0, compute_s=1e9, communication_s=1e8, samples=64, apart=1)
def test_two_arbitrary_reports_of_three_cost_little_and_not_for_long(
    name: str, parameters: dict[str, Any], apart: int, **odd: Any
) -> None:
    took, _ = trained_with(name, parameters, iterations=STEADY + 35, at={STEADY, STEADY + apart}, **odd)
    assert max(took[STEADY + 1 :]) <= WORST * took[STEADY]
    assert max(took[STEADY + apart + RECOVERY_FROM_TWO :]) <= 1.1 * took[STEADY]
