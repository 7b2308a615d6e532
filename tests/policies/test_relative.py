import random
from collections.abc import Iterable, Sequence

import pytest

from controlplane.core.choices import Finding, Observation
from controlplane.policies.stragglers.relative import RelativeState
from controlplane.policies.stragglers.scoring import medians_of_others
from tests.policies.cluster import observe, request, resolve

EVEN = dict.fromkeys(range(4), 64)
BALANCED = {0: 79, 1: 79, 2: 79, 3: 19}
SLOW = [1000.0, 1000.0, 1000.0, 250.0]
HEALTHY = [1000.0] * 4


def watch(iterations: Iterable[Sequence[Observation]]) -> list[tuple[int, Finding]]:
    """Every finding, with the number of iterations after which it came."""
    detector = resolve("stragglers", "relative")
    state = detector.start()
    findings = []
    for count, observations in enumerate(iterations, start=1):
        state, found = detector.observe(observations, state)
        findings += [(count, finding) for finding in found]
    return findings


def changes(iterations: Iterable[Sequence[Observation]]) -> list[tuple[int, int, str, bool]]:
    return [(count, found.rank, found.kind, found.open) for count, found in watch(iterations)]


def run(speeds: Sequence[Sequence[float]], shares: dict[int, int] = EVEN) -> list[list[Observation]]:
    return [observe(now, shares, iteration=iteration) for iteration, now in enumerate(speeds)]


def test_a_slow_worker_is_flagged_with_its_numbers() -> None:
    ((count, finding),) = watch(run([SLOW] * 20))
    assert count == 8
    assert finding.sentence == (
        "w3 took 4.0 times the others' median per sample (4 ms vs 1 ms) in 8 of the last 8 iterations; "
        "compute, not communication; all wait for it: busy 260 ms, the others at most 68 ms"
    )
    assert (finding.rank, finding.kind, finding.open, finding.persistence) == (3, "compute", True, "lasting")
    assert finding.evidence == pytest.approx(
        {
            "ratio": 4.0,
            "own_s": 0.004,
            "others_s": 0.001,
            "per": "sample",
            "slow_iterations": 8,
            "window": 8,
            "samples": 64,
            "total_samples": 256,
            "busy_s": 0.26,
            "typical_busy_s": 0.068,
            "slowest_other": 0,
            "slowest_other_busy_s": 0.068,
            "cost_s": 0.192,
        }
    )


def test_the_workers_that_wait_for_the_straggler_are_not_flagged() -> None:
    assert changes(run([SLOW] * 50)) == [(8, 3, "compute", True)]


def test_a_flag_closes_by_itself_after_the_worker_has_recovered() -> None:
    findings = watch(run([SLOW] * 20 + [HEALTHY] * 20))
    assert [(count, found.open) for count, found in findings] == [(8, True), (28, False)]
    assert findings[1][1].sentence == (
        "w3 keeps up again: 1.0 times the others' median per sample (1 ms vs 1 ms) over the last 10 iterations"
    )


def test_a_flag_reopens_when_the_worker_falls_behind_again() -> None:
    assert changes(run([SLOW] * 10 + [HEALTHY] * 10 + [SLOW] * 10)) == [
        (8, 3, "compute", True),
        (18, 3, "compute", False),
        (28, 3, "compute", True),
    ]


@pytest.mark.parametrize("length", range(1, 8))
def test_a_transient_slowness_is_no_flag(length: int) -> None:
    spike = [1000.0, 1000.0, 1000.0, 5.0]
    assert changes(run([HEALTHY] * 10 + [spike] * length + [HEALTHY] * 20)) == []


def test_two_good_iterations_among_ten_do_not_hide_a_slow_worker() -> None:
    assert changes(run([SLOW, SLOW, HEALTHY, SLOW, SLOW] * 4)) == [(10, 3, "compute", True)]


def test_a_worker_that_wavers_between_the_bars_keeps_what_it_has() -> None:
    between = [1000.0, 1000.0, 1000.0, 720.0]
    assert changes(run([between] * 30)) == []
    assert changes(run([SLOW] * 10 + [between] * 30)) == [(8, 3, "compute", True)]


def test_a_balanced_slow_machine_is_flagged_too_and_the_sentence_says_that_nobody_waits() -> None:
    ((count, finding),) = watch(run([SLOW] * 20, BALANCED))
    assert (count, finding.rank) == (8, 3)
    assert finding.sentence == (
        "w3 took 4.0 times the others' median per sample (4 ms vs 1 ms) in 8 of the last 8 iterations; compute, not "
        "communication; nobody waits for it with its share of 19 of 256 samples: busy 80 ms, the others' median 83 ms"
    )


def test_a_healthy_worker_with_a_large_share_is_not_flagged() -> None:
    assert changes(run([HEALTHY] * 20, {0: 200, 1: 19, 2: 19, 3: 18})) == []


def test_balancing_neither_opens_nor_closes_a_flag() -> None:
    policy, shares, iterations = resolve("batching", "lb-bsp-cpu"), EVEN, []
    state, _ = policy.start(request(EVEN), None)
    for iteration in range(40):
        seen = observe(SLOW, shares, iteration=iteration)
        state, decision = policy.decide(request(shares), seen if iteration >= 12 else [], state)
        shares = decision.shares
        iterations.append(seen)
    assert shares[3] < 25
    assert changes(iterations) == [(8, 3, "compute", True)]


def test_of_two_stragglers_the_lesser_one_is_told_from_the_one_that_holds_all_up() -> None:
    findings = [finding.sentence for _, finding in watch(run([[1000.0, 1000.0, 500.0, 250.0]] * 8))]
    assert [sentence.split("; ")[-1] for sentence in findings] == [
        "busy 132 ms, where the others' median is 68 ms and w3 260 ms",
        "all wait for it: busy 260 ms, the others at most 132 ms",
    ]


def test_slow_communication_is_a_flag_of_its_own() -> None:
    link = [0.02, 0.02, 0.08, 0.02]
    seen = [observe(HEALTHY, EVEN, iteration=iteration, communication_s=link) for iteration in range(20)]
    ((count, finding),) = watch(seen)
    assert (count, finding.rank, finding.kind) == (8, 2, "communication")
    assert finding.sentence == (
        "w2 took 4.0 times the others' median (80 ms vs 20 ms) in 8 of the last 8 iterations; "
        "communication, not compute; all wait for it: busy 144 ms, the others at most 84 ms"
    )


def test_a_worker_slow_in_both_respects_says_so() -> None:
    link = [0.02, 0.02, 0.02, 0.08]
    seen = [observe(SLOW, EVEN, iteration=iteration, communication_s=link) for iteration in range(8)]
    assert [(found.kind, found.sentence.split("; ")[1]) for _, found in watch(seen)] == [
        ("compute", "compute, and communication as well"),
        ("communication", "communication, and compute as well"),
    ]


def test_a_slowness_that_costs_the_iteration_next_to_nothing_is_no_flag() -> None:
    # Four times the others' compute, but 3 ms of an iteration of 100 ms that goes to communication.
    seen = [
        observe([64_000.0, 64_000.0, 64_000.0, 16_000.0], EVEN, iteration=iteration, communication_s=[0.1] * 4)
        for iteration in range(20)
    ]
    assert changes(seen) == []


def test_waiting_counts_into_the_iteration_that_a_loss_is_measured_by() -> None:
    # w3 loses half of its own 10 ms, but all of them wait for the link of w0, a hundred times as long.
    seen = [
        observe([12_800.0] * 3 + [6_400.0], EVEN, iteration=iteration, communication_s=[1.0, 1e-4, 1e-4, 1e-4])
        for iteration in range(20)
    ]
    assert changes(seen) == [(8, 0, "communication", True)]


def test_a_loss_below_a_millisecond_is_no_flag() -> None:
    fast = [640_000.0] * 3 + [80_000.0]
    assert changes([observe(fast, EVEN, iteration=k, communication_s=[1e-5] * 4) for k in range(20)]) == []


@pytest.mark.parametrize(("link_s", "stays"), [(0.9, True), (1.5, False)])
def test_an_open_flag_stays_until_the_loss_is_half_of_what_opened_it(link_s: float, stays: bool) -> None:
    # w3 loses 64 ms of compute, less than a tenth of an iteration once all links have become slow.
    speeds = [1000.0] * 3 + [500.0]
    seen = run([speeds] * 10) + [
        observe(speeds, EVEN, iteration=k, communication_s=[link_s] * 4) for k in range(10, 40)
    ]
    assert changes(seen) == [(8, 3, "compute", True)] + ([] if stays else [(18, 3, "compute", False)])


def test_of_two_workers_none_is_flagged() -> None:
    assert changes(run([[1000.0, 100.0]] * 30, {0: 64, 1: 64})) == []


def test_a_flag_closes_when_too_few_workers_are_left_to_compare() -> None:
    iterations = run([SLOW] * 10) + [
        [seen for seen in observations if seen.rank in (2, 3)]
        for observations in [observe(SLOW, EVEN, iteration=iteration) for iteration in range(10, 40)]
    ]
    findings = watch(iterations)
    assert [(count, found.open) for count, found in findings] == [(8, True), (20, False)]
    assert findings[1][1].sentence == (
        "w3 could not be compared with enough others for 10 iterations: not enough evidence"
    )


def test_a_worker_that_left_is_forgotten() -> None:
    detector = resolve("stragglers", "relative")
    state = detector.start()
    for iteration in range(40):
        seen = observe(SLOW, EVEN, iteration=iteration)
        state, _ = detector.observe(seen if iteration < 10 else seen[:3], state)
    assert state == RelativeState(tracks={"compute": {}, "communication": {}})


def test_iterations_without_samples_or_times_are_no_evidence() -> None:
    nothing = Observation(rank=3, iteration=0, samples=0, compute_s=9.0, communication_s=0.0, waiting_s=0.0)
    broken = Observation(rank=3, iteration=0, samples=9, compute_s=float("nan"), communication_s=0.0, waiting_s=0.0)
    healthy = observe(HEALTHY, EVEN)[:3]
    assert changes([[*healthy, nothing], [*healthy, broken], []] * 10) == []


def test_noise_among_equal_machines_is_no_flag() -> None:
    noise = random.Random(11)
    workers = dict.fromkeys(range(16), 64)
    seen = [observe([1000.0] * 16, workers, iteration=k, noise=noise, sigma=0.3) for k in range(500)]
    assert changes(seen) == []


def test_the_median_of_the_others_leaves_the_worker_itself_out() -> None:
    assert medians_of_others({0: 1.0, 1: 2.0, 2: 3.0, 3: 40.0}) == {0: 3.0, 1: 3.0, 2: 2.0, 3: 2.0}
    assert medians_of_others({0: 1.0, 1: 2.0, 2: 40.0}) == {0: 21.0, 1: 20.5, 2: 1.5}
