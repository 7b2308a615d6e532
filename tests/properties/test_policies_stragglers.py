"""Laws of the straggler detector: what can never be flagged, what always is, and what may not matter."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.policies.cluster import observe, resolve

shares_of_all = st.lists(st.integers(1, 200), min_size=3, max_size=8).map(lambda drawn: dict(enumerate(drawn)))


def watch(iterations, *, through_snapshots=False):
    detector = resolve("stragglers", "relative")
    state, findings = detector.start(), []
    for observations in iterations:
        if through_snapshots:
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=detector.state_type)
        state, found = detector.observe(observations, state)
        findings += found
    return findings


def noisy(speeds, shares, *, seed, iterations, sigma):
    noise = random.Random(seed)
    return [observe(speeds, shares, iteration=k, noise=noise, sigma=sigma) for k in range(iterations)]


@given(shares_of_all, st.integers(0, 2**32), st.floats(0.0, 0.2))
def test_noise_among_equal_machines_never_flags_under_any_shares(shares, seed, sigma):
    assert watch(noisy([1000.0] * len(shares), shares, seed=seed, iterations=60, sigma=sigma)) == []


@given(shares_of_all, st.floats(2.0, 100.0), st.integers(0, 2**32), st.data())
def test_a_machine_of_half_the_speed_is_always_flagged_under_equal_shares(shares, times, seed, data):
    slow = data.draw(st.sampled_from(sorted(shares)))
    speeds = [1000.0 / times if rank == slow else 1000.0 for rank in sorted(shares)]
    seen = noisy(speeds, dict.fromkeys(shares, 64), seed=seed, iterations=30, sigma=0.05)
    assert [(found.rank, found.kind, found.open) for found in watch(seen)] == [(slow, "compute", True)]


@given(st.lists(st.floats(100.0, 10_000.0), min_size=3, max_size=8), st.integers(0, 2**32))
def test_one_iteration_never_flags_whatever_happens_in_it(speeds, seed):
    workers = dict.fromkeys(range(len(speeds)), 64)
    calm = noisy([1000.0] * len(speeds), workers, seed=seed, iterations=20, sigma=0.05)
    assert watch([*calm[:10], observe(speeds, workers, iteration=10), *calm[11:]]) == []


@given(st.lists(st.sampled_from([200.0, 500.0, 800.0, 1000.0]), min_size=3, max_size=8), st.integers(0, 2**32))
def test_a_finding_is_opened_and_closed_in_turn(speeds, seed):
    noise = random.Random(seed)
    iterations = []
    for k in range(120):
        speeds = [noise.choice([200.0, 1000.0]) if noise.random() < 0.03 else speed for speed in speeds]
        iterations.append(observe(speeds, dict.fromkeys(range(len(speeds)), 64), iteration=k, noise=noise))
    by_flag: dict[tuple[int, str], list[bool]] = {}
    for found in watch(iterations):
        by_flag.setdefault((found.rank, found.kind), []).append(found.open)
    assert all(flag == [index % 2 == 0 for index in range(len(flag))] for flag in by_flag.values())


@given(st.lists(st.floats(100.0, 1000.0), min_size=3, max_size=8), st.integers(0, 2**32))
def test_a_snapshot_between_any_two_iterations_changes_nothing(speeds, seed):
    seen = noisy(speeds, dict.fromkeys(range(len(speeds)), 64), seed=seed, iterations=30, sigma=0.2)
    assert watch(seen, through_snapshots=True) == watch(seen)


@given(st.lists(st.floats(100.0, 1000.0), min_size=3, max_size=8), st.integers(0, 2**32))
def test_the_order_of_observations_does_not_matter(speeds, seed):
    seen = noisy(speeds, dict.fromkeys(range(len(speeds)), 64), seed=seed, iterations=20, sigma=0.2)
    assert watch([observations[::-1] for observations in seen]) == watch(seen)
