"""LB-BSP Alg. 2, its phases and the rulings about it."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import Observation, ShareDecision
from controlplane.policies.batching.min_max import Line, min_max
from tests.policies.cluster import observe, request, resolve


class Cluster:
    """Workers whose time is a line of their share; decisions take effect at once or an iteration late."""

    def __init__(self, lines: list[tuple[float, float]], *, share: int = 64, lag: int = 0, **parameters: Any) -> None:
        self.lines, self.lag = lines, lag
        self.policy = resolve("batching", "lb-bsp-gpu", **parameters)
        self.high: int | None = None
        self.memory: dict[int, float] = {}
        self.noise: random.Random | None = None
        shares = dict.fromkeys(range(len(lines)), share)
        self.state, decision = self.policy.start(request(shares), None)
        self.decided = [decision.shares] * (lag + 1)
        self.decisions: list[ShareDecision] = []

    @property
    def shares(self) -> dict[int, int]:
        """Those in force."""
        return self.decided[-1 - self.lag]

    def time(self, rank: int) -> float:
        begin, per_sample = self.lines[rank]
        return begin + per_sample * self.shares[rank]

    def step(self, iterations: int = 1) -> ShareDecision:
        for _ in range(iterations):
            seen = [
                Observation(
                    rank=rank,
                    iteration=len(self.decisions),
                    samples=self.shares[rank],
                    compute_s=self.time(rank) * (self.noise.lognormvariate(0.0, 0.03) if self.noise else 1.0),
                    communication_s=0.0,
                    waiting_s=0.0,
                    memory=self.memory.get(rank, 0.0),
                )
                for rank in self.shares
            ]
            asked = request(self.decided[-1], high=self.high)
            self.state, decision = self.policy.decide(asked, seen, self.state)
            self.decided.append(decision.shares)
            self.decisions.append(decision)
        return self.decisions[-1]


FAST, SLOW = (0.02, 0.001), (0.02, 0.004)
NEAR, NEARLY = (0.02, 0.001), (0.02, 0.0012)


def test_nothing_moves_before_the_window_is_full() -> None:
    cluster = Cluster([NEAR, NEARLY])
    assert cluster.step(4) == ShareDecision(
        shares={0: 64, 1: 64}, reason="fast approach: 4 of 5 iterations are observed"
    )
    assert cluster.step().shares == {0: 69, 1: 59}


def test_where_the_gap_is_large_two_iterations_are_a_window_and_most_of_it_is_closed_at_once() -> None:
    cluster = Cluster([FAST, SLOW])
    assert cluster.step().shares == {0: 64, 1: 64}
    assert cluster.step() == ShareDecision(
        shares={0: 89, 1: 39},
        reason="fast approach: w0 (84 ms) takes 25 from w1 (276 ms): 89 and 39 samples",
    )


def test_one_noisy_iteration_of_the_first_two_moves_nothing() -> None:
    cluster = Cluster([FAST, FAST])
    cluster.step()
    cluster.lines = [FAST, SLOW]
    assert cluster.step().shares == {0: 64, 1: 64}


def test_by_the_letter_the_leader_takes_five_samples_from_the_straggler_in_each_iteration() -> None:
    cluster = Cluster([FAST, SLOW], literal=True)
    assert cluster.step(5) == ShareDecision(
        shares={0: 69, 1: 59},
        reason="fast approach: w0 (84 ms) takes 5 from w1 (276 ms): 69 and 59 samples",
    )
    assert cluster.step(2).shares == {0: 79, 1: 49}


def test_a_leader_that_becomes_the_straggler_ends_the_fast_approach() -> None:
    cluster = Cluster([FAST, SLOW])
    while not cluster.state.fine:
        cluster.step()
    assert cluster.decisions[-1].reason == ("w1 and w0 have swapped places: from now on steps of 1 after 20 iterations")
    cluster.step(60)
    assert {decision.shares[0] - 103 for decision in cluster.decisions[-20:]} <= {-1, 0, 1}


def test_one_noisy_iteration_does_not_end_the_fast_approach_but_by_the_letter_it_does() -> None:
    endings = {}
    for literal in (False, True):
        cluster = Cluster([FAST, SLOW], literal=literal)
        cluster.step(3)
        cluster.lines = [(0.5, 0.001), SLOW]
        cluster.step()
        cluster.lines = [FAST, SLOW]
        cluster.step(3)
        endings[literal] = cluster.state.fine
    assert endings == {False: False, True: True}


def test_by_the_letter_a_straggler_with_no_more_than_a_step_freezes_everyone() -> None:
    lines = [(0.02, 0.001), (0.02, 0.003), (0.9, 0.001)]
    literal, ruled = Cluster(lines, share=12, literal=True), Cluster(lines, share=12)
    frozen = literal.step(60)
    assert frozen.shares == {0: 22, 1: 12, 2: 2}
    assert frozen.reason == "no step: w2 has 2 samples, no more than a step of 5"
    ruled.step(60)
    assert ruled.shares[2] == 1
    assert ruled.time(1) == pytest.approx(ruled.time(0), abs=0.006)


def test_a_hopeless_straggler_is_reported_once_and_again_when_it_recovers() -> None:
    cluster = Cluster([(0.02, 0.001), (0.02, 0.001), (0.9, 0.001)], share=6)
    cluster.step(20)
    opened = [finding for decision in cluster.decisions for finding in decision.findings]
    assert [(finding.rank, finding.kind, finding.open, finding.sentence) for finding in opened] == [
        (
            2,
            "hopeless",
            True,
            "remove w2: with 1 samples it still takes 901 ms; without it the slowest would take 31 ms",
        )
    ]
    cluster.lines[2] = (0.0, 0.001)
    cluster.step(1)
    assert [(finding.rank, finding.open) for finding in cluster.decisions[-1].findings] == [(2, False)]


def test_after_two_workers_swap_speed_the_fast_approach_is_armed_again() -> None:
    after = {}
    for literal in (False, True):
        cluster = Cluster([FAST, FAST, SLOW, SLOW], lag=1, literal=literal)
        cluster.noise = random.Random(5)
        cluster.step(120)
        cluster.lines = [SLOW, FAST, FAST, SLOW]
        iterations = 0
        while max(map(cluster.time, range(4))) > 1.15 * sum(map(cluster.time, range(4))) / 4 and iterations < 400:
            cluster.step()
            iterations += 1
        after[literal] = iterations
    assert after[False] <= 40
    assert after[False] < after[True]


def test_a_new_roster_begins_in_the_fast_phase() -> None:
    cluster = Cluster([FAST, SLOW])
    while not cluster.state.fine:
        cluster.step()
    state, decision = cluster.policy.start(request({0: 100, 1: 28}), cluster.state)
    assert (state.fine, state.window, decision.shares) == (False, (), {0: 100, 1: 28})
    assert state.memory == cluster.state.memory


def test_a_worker_whose_step_would_exceed_the_memory_limit_does_not_lead() -> None:
    for literal, leader in ((False, 1), (True, 0)):
        cluster = Cluster([FAST, (0.02, 0.002), SLOW], literal=literal)
        cluster.memory = {0: 0.90, 1: 0.5, 2: 0.5}
        decision = cluster.step(5)
        assert decision.shares[leader] > 64
    cluster = Cluster([FAST, SLOW])
    cluster.memory = {0: 0.99, 1: 0.5}
    assert cluster.step(9).shares == {0: 64, 1: 64}


def test_limits_stop_the_steps() -> None:
    cluster = Cluster([FAST, SLOW])
    cluster.high = 66
    assert cluster.step(5).shares == {0: 66, 1: 62}
    assert cluster.step().shares == {0: 66, 1: 62}


def test_a_worker_in_warm_up_means_no_step() -> None:
    cluster = Cluster([FAST, SLOW])
    _, decision = cluster.policy.decide(request({0: 64, 1: 64}), [], cluster.state)
    assert decision == ShareDecision(shares={0: 64, 1: 64}, reason="no step: 2 workers are not measured")


@pytest.mark.parametrize(("workers", "iterations"), [(4, 70), (16, 150)])
def test_noisy_workers_come_within_a_tenth_of_balance_and_stay(workers: int, iterations: int) -> None:
    chance = random.Random(3)
    lines = [(chance.uniform(0.02, 0.06), 1 / chance.choice([1000, 600, 250])) for _ in range(workers)]
    cluster = Cluster(lines, lag=1)
    cluster.noise = random.Random(4)
    cluster.step(iterations)
    for _ in range(30):
        cluster.step()
        times = [cluster.time(rank) for rank in range(workers)]
        assert max(times) <= 1.15 * sum(times) / workers


def optimum(cluster: Cluster) -> float:
    """The least possible longest time."""
    lines = {rank: Line(begin=begin, per_sample=each) for rank, (begin, each) in enumerate(cluster.lines)}
    total = sum(cluster.shares.values())
    shares = min_max(total, lines, dict.fromkeys(lines, (1, total)))
    return max(line.at(shares[rank]) for rank, line in lines.items())


@pytest.mark.parametrize("share", [64, 256, 1024])
@pytest.mark.parametrize("seed", range(3))
def test_sixteen_workers_whose_speeds_turn_round_are_balanced_again(share: int, seed: int) -> None:
    cluster = Cluster([(0.02, 1 / (100 + 60 * rank)) for rank in range(16)], share=share, lag=1)
    cluster.noise = random.Random(seed)
    cluster.step(300)
    cluster.lines.reverse()
    cluster.step(100)
    for _ in range(200):
        cluster.step()
        assert max(map(cluster.time, range(16))) <= 1.2 * optimum(cluster)


def test_by_the_letter_nothing_moves_on_a_short_window_either() -> None:
    cluster = Cluster([FAST, SLOW], literal=True)
    assert cluster.step(4).shares == {0: 64, 1: 64}
    assert cluster.step().shares == {0: 69, 1: 59}


@given(low=st.integers(1, 60), high=st.integers(70, 90), literal=st.booleans(), chance=st.randoms())
def test_every_step_keeps_the_limits(low: int, high: int, literal: bool, chance: random.Random) -> None:
    policy = resolve("batching", "lb-bsp-gpu", literal=literal, window=1, fine_window=2)
    state, decision = policy.start(request(dict.fromkeys(range(4), 64), low=low, high=high), None)
    for iteration in range(40):
        of = [chance.choice([100.0, 500.0, 1000.0]) for _ in range(4)]
        seen = observe(of, decision.shares, iteration=iteration)
        state, decision = policy.decide(request(decision.shares, low=low, high=high), seen, state)
        assert sum(decision.shares.values()) == 256
        assert all(low <= share <= high for share in decision.shares.values())
