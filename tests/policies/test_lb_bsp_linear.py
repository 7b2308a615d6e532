"""The line of each worker and the shares with the least longest time (ruling 5)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Observation, ShareDecision
from controlplane.policies.batching.min_max import Line, min_max
from controlplane.policies.batching.recursive import Fit, observe
from tests.policies.cluster import request, resolve


def best(lines: dict[int, Line], total: int) -> float:
    shares = min_max(total, lines, dict.fromkeys(lines, (1, total)))
    return max(lines[rank].at(shares[rank]) for rank in lines)


def a_cluster(workers: int, seed: int) -> dict[int, Line]:
    chance = random.Random(seed)
    return {
        rank: Line(begin=chance.uniform(0.02, 0.06), per_sample=1 / chance.choice([1000, 600, 250, 120]))
        for rank in range(workers)
    }


def run(lines: dict[int, Line], *, iterations: int, seed: int, swap_at: int | None = None) -> list[float]:
    """Iteration time over the least possible one; each decision takes effect an iteration late, as it does live."""
    chance = random.Random(seed)
    policy = resolve("batching", "lb-bsp-linear")
    total = 64 * len(lines)
    state, decision = policy.start(request(dict.fromkeys(lines, 64)), None)
    force = decided = decision.shares
    ratios = []
    for iteration in range(iterations):
        if iteration == swap_at:
            order = sorted(lines, key=lambda rank: lines[rank].per_sample)
            lines = lines | {order[0]: lines[order[-1]], order[-1]: lines[order[0]]}
        times = {rank: line.at(force[rank]) for rank, line in lines.items()}
        ratios.append(max(times.values()) / best(lines, total))
        seen = [
            Observation(
                rank=rank,
                iteration=iteration,
                samples=force[rank],
                compute_s=times[rank] * chance.lognormvariate(0.0, 0.03),
                communication_s=0.004,
                waiting_s=0.0,
            )
            for rank in lines
        ]
        following = decided
        state, decision = policy.decide(request(decided), seen, state)
        force, decided = following, decision.shares
    return ratios


@pytest.mark.parametrize("workers", [4, 16, 64])
@pytest.mark.parametrize("seed", range(5))
def test_within_a_tenth_of_the_optimum_in_five_iterations_and_never_frozen(workers: int, seed: int) -> None:
    ratios = run(a_cluster(workers, seed), iterations=60, seed=seed)
    assert min(ratios[:5]) <= 1.1
    assert sum(ratios[20:]) / 40 <= 1.03


@pytest.mark.parametrize("workers", [4, 16, 64])
@pytest.mark.parametrize("seed", range(5))
def test_recovered_in_ten_iterations_after_two_workers_swap_speed(workers: int, seed: int) -> None:
    ratios = run(a_cluster(workers, seed), iterations=130, seed=seed, swap_at=100)
    assert ratios[100] > 1.2
    assert max(ratios[110:120]) <= 1.1


def test_a_decision_says_what_each_end_needs_and_what_it_is_worth() -> None:
    policy = resolve("batching", "lb-bsp-linear")
    asked = request({0: 64, 1: 64})
    state, _ = policy.start(asked, None)
    for shares in ({0: 64, 1: 64}, {0: 96, 1: 32}, {0: 64, 1: 64}):
        seen = [
            Observation(
                rank=rank,
                iteration=0,
                samples=shares[rank],
                compute_s=0.02 + shares[rank] / speed,
                communication_s=0.01,
                waiting_s=0.0,
            )
            for rank, speed in enumerate((1000, 250))
        ]
        state, decision = policy.decide(asked, seen, state)
    assert decision == ShareDecision(
        shares=decision.shares, reason=decision.reason, speeds=decision.speeds, predicted_s=decision.predicted_s
    )
    assert decision.shares[0] in range(100, 104)
    assert decision.reason.startswith("w1 needs ")
    assert decision.reason.endswith(" instead of 286 ms")


def test_one_odd_time_moves_the_line_little_and_a_second_one_is_a_new_speed() -> None:
    def seen(compute_s: float) -> Observation:
        return Observation(rank=0, iteration=0, samples=64, compute_s=compute_s, communication_s=0.0, waiting_s=0.0)

    fit: Fit | None = None
    for _ in range(20):
        fit = observe(fit, seen(0.1), 0.98)
    odd = observe(fit, seen(0.3), 0.98)
    assert odd.line.at(64) == pytest.approx(0.1, rel=0.05)
    assert observe(odd, seen(0.1), 0.98).odd == 0
    assert observe(odd, seen(0.3), 0.98).line.at(64) == pytest.approx(0.3)


def test_begin_is_never_below_zero() -> None:
    fit: Fit | None = None
    for samples, compute_s in ((10, 0.001), (100, 0.1), (10, 0.001), (100, 0.1)):
        one = Observation(rank=0, iteration=0, samples=samples, compute_s=compute_s, communication_s=0.0, waiting_s=0.0)
        fit = observe(fit, one, 0.98)
        assert fit.line.begin >= 0.0


small_lines = st.builds(Line, begin=st.floats(0.0, 5.0), per_sample=st.floats(0.01, 3.0))


@settings(deadline=None)
@given(st.lists(small_lines, min_size=1, max_size=4), st.integers(0, 12), st.data())
def test_no_other_shares_end_earlier(lines: list[Line], total: int, data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, 4), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))
    limits = {rank: data.draw(bounds) for rank in range(len(lines))}
    every = [
        shares
        for shares in itertools.product(*(range(low, high + 1) for low, high in limits.values()))
        if sum(shares) == total
    ]
    if not every:
        return
    by_rank = dict(enumerate(lines))
    shares = min_max(total, by_rank, limits)
    assert tuple(shares.values()) in every
    least = min(max(line.at(share) for line, share in zip(lines, one, strict=True)) for one in every)
    assert max(by_rank[rank].at(share) for rank, share in shares.items()) == pytest.approx(least, rel=1e-9)
