"""Whom a worker looks at."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.policies.barriers import draws
from controlplane.policies.barriers.sampling import measure, populate, sample, split_by_means
from controlplane.policies.catalogue.barriers import PbspParameters
from controlplane.protocol.chance import draw, key
from controlplane.protocol.drawing import any_others, chance_of

TIMES = {0: 1.0, 1: 1.1, 2: 0.9, 3: 1.0, 4: 4.0, 5: 1.2, 6: 4.2, 7: 1.0, 8: 3.9, 9: 1.0}


def grouped(**changes):
    parameters = PbspParameters(strategy="grouped", **changes)
    population = populate(list(TIMES), 7, parameters, None)
    for rank, busy_s in TIMES.items():
        measure(population, rank, busy_s, parameters)
    return population, parameters


@given(
    st.lists(st.integers(0, 3000), min_size=2, max_size=3 * draws.FEW, unique=True).map(sorted),
    st.integers(0, 2**63),
    st.integers(0, 2**31),
    st.integers(0, 2 * draws.TRIES),
    st.integers(1, 2 * draws.MOST),
    st.data(),
)
def test_a_sample_from_a_block_is_what_a_worker_draws_by_itself(ranks, seed, iteration, attempt, count, data):
    parameters = PbspParameters(sample=count)
    population = populate(ranks, seed, parameters, None)
    rank = data.draw(st.sampled_from(ranks))
    alone = any_others(ranks, ranks.index(rank), count, chance_of(seed, rank, iteration, attempt))
    assert sample(population, parameters, rank, iteration, attempt) == alone


@given(st.integers(0, 2**63), st.integers(0, 40), st.integers(0, 45))
def test_draw_gives_different_numbers_in_range(seed, size, count):
    drawn = draw(seed, size, count)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(size, count)
    assert all(0 <= number < size for number in drawn)


def test_every_set_is_drawn_about_equally_often():
    counts = dict.fromkeys(itertools.combinations(range(5), 2), 0)
    for number in range(10_000):
        counts[tuple(draw(key(1, number), 5, 2))] += 1
    # Ten sets, 1,000 expected each; a standard deviation is 30.
    assert all(880 < count < 1120 for count in counts.values())


def test_no_one_samples_itself_and_every_other_is_sampled():
    parameters = PbspParameters(sample=3)
    population = populate(range(8), 7, parameters, None)
    for rank in range(8):
        seen = {other for k in range(60) for other in sample(population, parameters, rank, k, 0)}
        assert seen == set(range(8)) - {rank}


def test_fixed_subset_is_one_for_the_job_and_does_not_change():
    parameters = PbspParameters(sample=3, strategy="fixed")
    population = populate(range(12), 7, parameters, None)
    samples = {rank: sample(population, parameters, rank, 0, 0) for rank in range(12)}
    assert samples == {rank: sample(population, parameters, rank, 9, 4) for rank in range(12)}
    assert len({other for drawn in samples.values() for other in drawn}) == 4


def test_groups_are_the_slow_and_the_fast():
    population, _ = grouped()
    assert (population.slow, population.fast) == ([4, 6, 8], [0, 1, 2, 3, 5, 7, 9])


@pytest.mark.parametrize("rank", range(10))
def test_grouped_sample_is_half_slow_and_half_fast(rank):
    population, parameters = grouped(sample=4)
    drawn = sample(population, parameters, rank, 3, 0)
    assert rank not in drawn
    assert [len(set(drawn) & {4, 6, 8}), len(drawn)] == [2, 4]


def test_group_with_too_few_is_filled_up_from_the_other():
    population, parameters = grouped(sample=8)
    drawn = sample(population, parameters, 4, 3, 0)
    assert drawn[:4] == [0, 1, 2, 3] or len(drawn) == 8
    assert set(drawn) >= {6, 8}


def test_threshold_groups_by_time():
    population, _ = grouped(threshold_s=1.15)
    assert population.slow == [4, 5, 6, 8]


def test_equal_workers_are_not_grouped():
    parameters = PbspParameters(strategy="grouped")
    population = populate(range(4), 7, parameters, None)
    for rank in range(4):
        measure(population, rank, 1.0, parameters)
    assert population.slow_from_s is None
    assert len(sample(population, parameters, 0, 0, 0)) == 3


@given(st.lists(st.floats(0.01, 100.0), min_size=2, max_size=9))
def test_split_is_the_best_of_all_in_two_means(times):
    def squares(group):
        return sum((time - sum(group) / len(group)) ** 2 for time in group)

    split = split_by_means(times)
    if split is None:
        assert len(set(times)) == 1
        return
    cost = squares([t for t in times if t < split]) + squares([t for t in times if t >= split])
    others = [
        squares([t for t in times if t < edge]) + squares([t for t in times if t >= edge])
        for edge in set(times) - {min(times)}
    ]
    assert cost <= min(others) + 1e-6 * (1 + cost)
