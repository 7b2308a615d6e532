"""One arbitrary report among steady ones: what it may cost, for every batching policy and every predictor."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Observation
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


@pytest.mark.parametrize(
    ("name", "parameters"), POLICIES, ids=lambda each: each if isinstance(each, str) else "-".join(each.values())
)
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
    name, parameters, rank, compute_s, communication_s, samples, at
) -> None:
    policy = resolve("batching", name, **parameters)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64)), None)
    took = []
    for iteration in range(at + RECOVERY + 8):
        took.append(iteration_s(decision.shares))
        seen = observe(SPEEDS, decision.shares, iteration=iteration)
        if iteration == at:
            odd = Observation(
                rank=rank,
                iteration=iteration,
                samples=samples,
                compute_s=compute_s,
                communication_s=communication_s,
                waiting_s=0.0,
            )
            seen[rank] = odd
        state, decision = policy.decide(request(decision.shares, iteration=iteration + 1), seen, state)
    before = took[at] if at == STEADY else took[0]
    # Of a worker's first reports nothing tells which is the odd one until there are three.
    assert max(took[at + (1 if at >= 3 else 3) :]) <= WORST * before
    assert max(took[at + RECOVERY :]) <= 1.1 * before
    assert all(math.isfinite(speed) for speed in decision.speeds.values())
