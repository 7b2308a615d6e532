"""PSP on a ring of nodes: lookups, random peers, the estimate of how many there are, and the progress made so."""

import math
import random
import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.simulator.overlay.progress import Crowd, course_of, in_lockstep
from controlplane.simulator.overlay.ring import SPACE, Ring

IDS = st.sets(st.integers(0, SPACE - 1), min_size=1, max_size=60).map(list)


@given(IDS, st.integers(0, SPACE - 1), st.integers(0, 59))
def test_a_lookup_finds_the_first_node_at_or_after_the_key(ids, key, start):
    ring = Ring(ids)
    node = start % len(ids)
    ahead = [(each - key) % SPACE for each in ids]
    found = ring.lookup(node, key)
    assert found.node == ring.owner(key) == ahead.index(min(ahead))
    assert found.hops <= len(ids)


@given(IDS)
def test_all_nodes_together_own_every_key(ids):
    ring = Ring(ids)
    assert math.isclose(sum(ring.owned(node) for node in range(len(ids))), 1.0)


def test_a_lookup_takes_about_half_of_log_2_hops():
    for nodes in (64, 1024, 8192):
        ring, chance = Ring.drawn(nodes, 3), random.Random(4)
        hops = [ring.lookup(chance.randrange(nodes), chance.randrange(SPACE)).hops for _ in range(400)]
        assert abs(statistics.fmean(hops) - (0.5 * math.log2(nodes) + 1)) < 0.8
        assert max(hops) <= 2 * math.log2(nodes)


@settings(max_examples=12, deadline=None)
@given(st.integers(100, 3000), st.integers(4, 64), st.integers(0, 99))
def test_the_estimate_is_off_by_one_in_the_root_of_the_successors_that_are_known(nodes, known, seed):
    """Unbiased, with a relative deviation of 1 / sqrt(k - 2): the law of a sum of k exponential gaps."""
    ring, chance = Ring.drawn(nodes, seed), random.Random(seed)
    estimates = [ring.estimate(node, known) / nodes for node in chance.sample(range(nodes), 100)]
    expected = 1 / math.sqrt(max(1, known - 2))
    # Estimates of neighbours have gaps in common, so the mean of 100 is surer than one, but not ten times.
    assert abs(statistics.median(estimates) - 1) < 1.5 * expected + 0.1
    within = sum(abs(each - 1) <= 3 * expected for each in estimates)
    assert within >= 85


def test_the_estimate_of_a_ring_that_is_known_whole_is_exact():
    ring = Ring.drawn(12, 1)
    assert {ring.estimate(node) for node in range(12)} == {12.0}


def test_continuing_to_a_successor_makes_random_peers_more_even():
    nodes, draws = 100, 20_000
    ring = Ring.drawn(nodes, 5)

    def unevenness(*, even: bool) -> float:
        chance, times = random.Random(6), [0] * nodes
        for _ in range(draws):
            times[ring.random_peer(0, chance, even=even).node] += 1
        return sum(abs(each / draws - 1 / nodes) for each in times) / 2

    assert unevenness(even=False) > 0.25
    assert unevenness(even=True) < 0.13


def test_a_small_sample_keeps_workers_together_and_most_of_the_progress():
    asp = course_of(Crowd(nodes=200, sample=0))
    pbsp = course_of(Crowd(nodes=200, sample=4))
    assert asp.messages == 0
    assert pbsp.spread < asp.spread / 3
    assert 0.4 * asp.mean < pbsp.mean < asp.mean


def test_messages_of_a_step_grow_as_the_logarithm_of_the_nodes():
    few, many = (course_of(Crowd(nodes=nodes, seconds=15)) for nodes in (64, 1024))
    assert many.hops_per_lookup < few.hops_per_lookup + 0.5 * math.log2(1024 / 64) + 0.5
    assert many.messages_per_step < 2 * few.messages_per_step


def test_the_same_seed_gives_the_same_course():
    assert course_of(Crowd(nodes=50, seconds=10)) == course_of(Crowd(nodes=50, seconds=10))


def test_who_asks_the_same_again_needs_fewer_messages_and_waits_longer():
    redrawn, held = (course_of(Crowd(nodes=300, sample=2, seconds=20, held=held)) for held in (False, True))
    assert held.messages_per_step < redrawn.messages_per_step
    assert held.mean <= redrawn.mean
    assert held.spread <= redrawn.spread


def test_a_sample_lies_between_all_and_no_one():
    crowd = Crowd(nodes=100, seconds=20)
    assert in_lockstep(crowd) <= course_of(crowd).mean
