"""A common time budget (ruling 21), on workers that look at the clock after each piece."""

import math
import statistics

from benchmarks.offline.speed_series import SETTINGS, generate
from controlplane.core.choices import Observation, ShareDecision
from tests.policies.cluster import request, resolve


def processed(decision: ShareDecision, rank: int, speed: float, pieces: int = 16) -> tuple[int, float]:
    """Samples and seconds of one worker: it stops after the piece in which the budget ends, or at its ceiling."""
    share = decision.shares[rank]
    if decision.budget_s is None:
        return share, share / speed
    size = max(1, math.ceil(share / pieces))
    done = 0
    while done < decision.ceilings[rank] and done / speed < decision.budget_s:
        done = min(decision.ceilings[rank], done + size)
    return done, done / speed


def run(iterations: int = 300) -> tuple[list[float], list[int], list[ShareDecision]]:
    """Iteration times over those of the least possible, samples, decisions; on a shared cluster with spikes."""
    series = generate(SETTINGS[0], iterations=iterations, seed=11, machines=32)
    policy = resolve("batching", "deadline")
    state, decision = policy.start(request(dict.fromkeys(range(32), 128)), None)
    ratios, samples, decisions = [], [], []
    for k, speeds in enumerate(series.speed.tolist()):
        done = {rank: processed(decision, rank, speeds[rank]) for rank in range(32)}
        ratios.append(max(time for _, time in done.values()) / (4096 / sum(speeds)))
        samples.append(sum(count for count, _ in done.values()))
        decisions.append(decision)
        seen = [
            Observation(rank=rank, iteration=k, samples=count, compute_s=time, communication_s=0.01, waiting_s=0.0)
            for rank, (count, time) in done.items()
        ]
        state, decision = policy.decide(request(decision.shares), seen, state)
    return ratios, samples, decisions


def test_no_one_is_stopped_before_everyone_was_measured() -> None:
    policy = resolve("batching", "deadline")
    state, decision = policy.start(request({0: 64, 1: 64}), None)
    assert (decision.budget_s, decision.ceilings) == (None, {})
    one = Observation(rank=0, iteration=0, samples=64, compute_s=0.1, communication_s=0.0, waiting_s=0.0)
    _, decision = policy.decide(request({0: 64, 1: 64}), [one], state)
    assert decision.budget_s is None


def test_the_budget_is_what_all_need_together_less_half_a_piece() -> None:
    policy = resolve("batching", "deadline")
    state, decision = policy.start(request({0: 64, 1: 64}), None)
    seen = [
        Observation(rank=rank, iteration=0, samples=64, compute_s=64 / speed, communication_s=5.0, waiting_s=0.0)
        for rank, speed in enumerate((600.0, 200.0))
    ]
    _, decision = policy.decide(request(decision.shares), seen, state)
    assert decision.shares == {0: 96, 1: 32}
    assert decision.ceilings == {0: 128, 1: 64}
    assert decision.budget_s == 128 / 800 * (1 - 1 / 32)
    assert decision.reason.startswith(
        "all workers stop after 155 ms, in which all should process 128 samples; ema expects"
    )


def test_what_was_not_processed_is_aimed_at_in_the_next_iteration() -> None:
    policy = resolve("batching", "deadline")
    state, decision = policy.start(request({0: 64, 1: 64}), None)
    seen = [
        Observation(rank=rank, iteration=0, samples=samples, compute_s=0.1, communication_s=0.0, waiting_s=0.0)
        for rank, samples in enumerate((64, 44))
    ]
    state, decision = policy.decide(request({0: 64, 1: 64}), seen, state)
    assert state.owed == 20
    assert "should process 148 samples to compensate for 20 samples" in decision.reason


def test_on_average_an_iteration_processes_the_global_batch() -> None:
    _, samples, _ = run()
    assert abs(statistics.mean(samples[10:]) / 4096 - 1) < 0.01
    assert abs(sum(samples) - 4096 * len(samples)) <= 4096


def test_with_spikes_it_is_a_quarter_faster_than_proportional_shares_of_the_same_predictions() -> None:
    ratios, _, _ = run()
    series = generate(SETTINGS[0], iterations=300, seed=11, machines=32)
    policy = resolve("batching", "lb-bsp-cpu", predictor="ema")
    state, decision = policy.start(request(dict.fromkeys(range(32), 128)), None)
    awaited = []
    for k, speeds in enumerate(series.speed.tolist()):
        times = {rank: decision.shares[rank] / speeds[rank] for rank in range(32)}
        awaited.append(max(times.values()) / (4096 / sum(speeds)))
        seen = [
            Observation(
                rank=rank, iteration=k, samples=decision.shares[rank], compute_s=time, communication_s=0, waiting_s=0
            )
            for rank, time in times.items()
        ]
        state, decision = policy.decide(request(decision.shares), seen, state)
    assert statistics.mean(ratios[10:]) < 0.75 * statistics.mean(awaited[10:])
