"""Laws of every registered straggler detector: a new one joins by being registered."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.policies import registry
from tests.policies.cluster import observe, resolve

no_deadline = hypothesis_settings(deadline=None)
"""How long an example takes depends on what else the machine does."""

every_detector = pytest.mark.parametrize("name", registry.names("stragglers"))
speeds_of_all = st.lists(st.sampled_from([100.0, 500.0, 900.0, 1000.0]), min_size=1, max_size=6)
seeds = st.integers(0, 2**32)


def story(speeds, seed, *, iterations=60):
    """Machines that change speed now and then, leave for a while, and sometimes report nonsense."""
    chance = random.Random(seed)
    told = []
    for k in range(iterations):
        speeds = [chance.choice([200.0, 1000.0]) if chance.random() < 0.03 else speed for speed in speeds]
        seen = observe(speeds, dict.fromkeys(range(len(speeds)), 64), iteration=k, noise=chance, sigma=0.1)
        seen = [one for one in seen if chance.random() < 0.95]
        if seen and chance.random() < 0.1:
            seen[0] = msgspec.structs.replace(seen[0], compute_s=chance.choice([float("nan"), -1.0, 0.0, 1e9]))
        told.append(seen)
    return told


def watch(name, iterations, *, through_snapshots=False):
    detector = resolve("stragglers", name)
    state, findings = detector.start(), []
    for observations in iterations:
        if through_snapshots:
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=detector.state_type)
        state, found = detector.observe(observations, state)
        findings += found
    return findings


@every_detector
@no_deadline
@given(speeds=speeds_of_all, seed=seeds)
def test_neither_snapshots_nor_the_order_of_reports_matter(name, speeds, seed):
    told = story(speeds, seed)
    findings = watch(name, told)
    assert watch(name, told, through_snapshots=True) == findings
    assert watch(name, [seen[::-1] for seen in told]) == findings


@every_detector
@no_deadline
@given(speeds=speeds_of_all, seed=seeds)
def test_a_flag_is_opened_and_closed_in_turn_with_a_sentence(name, speeds, seed):
    by_flag: dict[tuple[str, int, str], list[bool]] = {}
    for found in watch(name, story(speeds, seed)):
        assert found.sentence
        by_flag.setdefault((found.subject, found.rank, found.kind), []).append(found.open)
    assert all(flag == [index % 2 == 0 for index in range(len(flag))] for flag in by_flag.values())


@every_detector
@no_deadline
@given(count=st.integers(3, 8), times=st.floats(2.0, 100.0), seed=seeds)
def test_of_equal_machines_only_one_that_is_made_slow_is_flagged(name, count, times, seed):
    noise = random.Random(seed)
    shares = dict.fromkeys(range(count), 64)
    calm = [observe([1000.0] * count, shares, iteration=k, noise=noise) for k in range(20)]
    assert watch(name, calm) == []
    slow = [1000.0] * (count - 1) + [1000.0 / times]
    told = calm + [observe(slow, shares, iteration=k, noise=noise) for k in range(20, 40)]
    assert {(found.rank, found.kind) for found in watch(name, told)} == {(count - 1, "compute")}


@every_detector
@no_deadline
@given(speeds=st.lists(st.floats(100.0, 10_000.0), min_size=3, max_size=8), seed=seeds)
def test_one_iteration_never_flags_whatever_happens_in_it(name, speeds, seed):
    noise = random.Random(seed)
    shares = dict.fromkeys(range(len(speeds)), 64)
    calm = [observe([1000.0] * len(speeds), shares, iteration=k, noise=noise) for k in range(20)]
    assert watch(name, [*calm[:10], observe(speeds, shares, iteration=10), *calm[11:]]) == []
