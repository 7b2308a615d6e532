"""Laws of straggler detection: what always is flagged, and what never is."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.cluster import observe, resolve
from tests.support.examples import examples

few = settings(max_examples=examples(20), deadline=None)
sizes = st.integers(3, 8)
seeds = st.integers(0, 2**32)


def open_flags(speeds, *, seed, iterations, sigma):
    detector, noise = resolve("stragglers", "evidence"), random.Random(seed)
    state, flags = detector.start(), {}
    for k in range(iterations):
        seen = observe(speeds, dict.fromkeys(range(len(speeds)), 64), iteration=k, noise=noise, sigma=sigma)
        state, findings = detector.observe(seen, state)
        for found in findings:
            flags[found.rank, found.kind] = found.persistence if found.open else ""
    return flags


@few
@given(size=sizes, seed=seeds)
def test_noise_among_equal_machines_never_flags(size, seed):
    assert open_flags([1000.0] * size, seed=seed, iterations=40, sigma=0.08) == {}


@few
@given(size=sizes, times=st.floats(2.0, 100.0), seed=seeds)
def test_only_the_slow_machine_is_flagged_never_those_that_wait_for_it(size, times, seed):
    slow = seed % size
    speeds = [1000.0 / times if rank == slow else 1000.0 for rank in range(size)]
    assert open_flags(speeds, seed=seed, iterations=30, sigma=0.05) == {(slow, "compute"): "lasting"}
