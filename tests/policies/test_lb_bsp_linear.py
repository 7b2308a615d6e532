"""The line of each worker and the shares with the least longest time (ruling 5)."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.core.choices import Observation, ShareDecision
from controlplane.policies.batching.lb_bsp_linear import evened, raised
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


def test_a_decision_reports_what_each_end_needs_and_what_it_is_worth() -> None:
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


def final_shares(lines: dict[int, Line], *, noise: float, seed: int) -> list[dict[int, int]]:
    """Shares of each of 200 iterations on these machines."""
    chance = random.Random(seed)
    policy = resolve("batching", "lb-bsp-linear")
    state, decision = policy.start(request(dict.fromkeys(lines, 32)), None)
    found = []
    for iteration in range(200):
        shares = decision.shares
        seen = [
            Observation(
                rank=rank,
                iteration=iteration,
                samples=shares[rank],
                compute_s=line.at(shares[rank]) * chance.lognormvariate(0.0, noise),
                communication_s=0.001,
                waiting_s=0.0,
            )
            for rank, line in lines.items()
        ]
        state, decision = policy.decide(request(shares), seen, state)
        found.append(shares)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_a_constant_cost_does_not_give_all_samples_to_one_worker(seed: int) -> None:
    machines = {rank: Line(begin=0.013 + 0.0005 * rank, per_sample=2e-6) for rank in range(2)}
    shares = final_shares(machines, noise=0.2, seed=seed)[20:]
    assert sum(each[1] for each in shares) / len(shares) > 24
    assert min(each[1] for each in shares) >= 8


@given(
    begins=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6),
    slopes=st.lists(st.floats(1e-5, 1.0), min_size=6, max_size=6),
    room=st.floats(0.0, 0.2),
)
def test_evened_shares_stay_within_the_room_that_they_were_given(
    begins: list[float], slopes: list[float], room: float
) -> None:
    lines = {rank: Line(begin=begin, per_sample=slopes[rank]) for rank, begin in enumerate(begins)}
    total, limits = 32 * len(lines), dict.fromkeys(lines, (1, 32 * len(lines)))
    least = min_max(total, lines, limits)
    shares = evened(least, lines, limits, room)
    slowest = max(lines[rank].at(share) for rank, share in least.items())
    assert sum(shares.values()) == total
    assert max(lines[rank].at(share) for rank, share in shares.items()) <= (1 + room) * slowest * (1 + 1e-9)
    assert max(shares.values()) - min(shares.values()) <= max(least.values()) - min(least.values())


def longest_below(least: int, found: list[dict[int, int]], rank: int) -> int:
    """The most iterations in a row in which the rank had fewer samples."""
    runs = itertools.groupby(each[rank] < least for each in found)
    return max((len(list(run)) for is_below, run in runs if is_below), default=0)


def shares_under_load(lines: dict[int, Line], *, noise: float, seed: int) -> list[dict[int, int]]:
    """Shares of 200 iterations, with decisions that hold two later, on machines that others load now and then."""
    chance = random.Random(seed)
    policy = resolve("batching", "lb-bsp-linear")
    state, decision = policy.start(request(dict.fromkeys(lines, 16)), None)
    found, load = [decision.shares] * 3, dict.fromkeys(lines, 1.0)
    for iteration in range(200):
        load = {rank: chance.choice([1, 1, 1, 1.5, 2.5]) if chance.random() < 0.03 else load[rank] for rank in lines}
        seen = [
            Observation(
                rank=rank,
                iteration=iteration,
                samples=found[-3][rank],
                compute_s=line.at(found[-3][rank]) * load[rank] * chance.lognormvariate(0.0, noise),
                communication_s=0.001 * chance.lognormvariate(0.0, 0.5),
                waiting_s=0.0,
            )
            for rank, line in lines.items()
        ]
        state, decision = policy.decide(request(found[-1]), seen, state)
        found.append(decision.shares)
    return found


@pytest.mark.parametrize("noise", [0.05, 0.15])
@pytest.mark.parametrize("seed", range(4))
def test_load_leaves_no_worker_of_a_tiny_model_with_a_single_sample_for_long(noise: float, seed: int) -> None:
    machines = dict.fromkeys(range(4), Line(begin=0.004, per_sample=5e-5))
    found = shares_under_load(machines, noise=noise, seed=seed)
    assert max(longest_below(2, found, rank) for rank in machines) <= 5


def test_a_worker_that_is_much_slower_has_as_little_as_that_takes() -> None:
    speeds = {0: 1000.0, 1: 1000.0, 2: 40.0}
    machines = {rank: Line(begin=1e-6, per_sample=1 / speed) for rank, speed in speeds.items()}
    found = final_shares(machines, noise=0.01, seed=1)
    assert {each[2] for each in found[10:]} <= {1, 2}


@given(
    begins=st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6),
    slopes=st.lists(st.floats(1e-5, 1.0), min_size=6, max_size=6),
    room=st.floats(0.0, 0.5),
)
def test_raised_shares_stay_within_the_room_that_they_were_given(
    begins: list[float], slopes: list[float], room: float
) -> None:
    lines = {rank: Line(begin=begin, per_sample=slopes[rank]) for rank, begin in enumerate(begins)}
    total, limits = 32 * len(lines), dict.fromkeys(lines, (1, 32 * len(lines)))
    least = min_max(total, lines, limits)
    shares = raised(least, lines, limits, 0.25, room)
    slowest = max(lines[rank].at(share) for rank, share in least.items())
    assert sum(shares.values()) == total
    assert max(lines[rank].at(share) for rank, share in shares.items()) <= (1 + room) * slowest * (1 + 1e-9)
    assert min(shares.values()) >= min(least.values())
