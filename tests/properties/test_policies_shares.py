"""Laws of dividing samples over workers, whatever the speeds and limits."""

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from controlplane.policies.batching.apportion import ImpossibleShares, apportion, is_possible
from controlplane.policies.data.shared import Shared

weights = st.one_of(st.integers(0, 1000), st.floats(0.0, 1e6, allow_subnormal=True), st.floats(0.0, 1.7e308))
speeds = st.one_of(st.integers(1, 1000), st.floats(1e-3, 1e6))


@st.composite
def problems(draw, of=weights, equal_limits=False):
    """A total, weights and limits that allow it."""
    count = draw(st.integers(1, 12))
    bounds = st.tuples(st.integers(0, 40), st.integers(0, 60)).map(lambda pair: (pair[0], pair[0] + pair[1]))
    common = draw(bounds)
    limits = {rank: common if equal_limits else draw(bounds) for rank in range(count)}
    total = draw(st.integers(sum(low for low, _ in limits.values()), sum(high for _, high in limits.values())))
    return total, {rank: draw(of) for rank in range(count)}, limits


def free_of_limits(count, total):
    return dict.fromkeys(range(count), (0, total))


@given(problems())
def test_shares_sum_to_the_total_and_stay_within_the_limits(problem):
    total, given_weights, limits = problem
    shares = apportion(total, given_weights, limits)
    assert list(shares) == sorted(given_weights)
    assert sum(shares.values()) == total
    assert all(limits[rank][0] <= share <= limits[rank][1] for rank, share in shares.items())


@given(problems(of=speeds))
def test_moving_one_sample_between_workers_improves_nothing(problem):
    total, of, limits = problem
    shares = apportion(total, of, limits)
    takers = [Fraction(shares[rank] + 1) / Fraction(of[rank]) for rank in shares if shares[rank] < limits[rank][1]]
    givers = [Fraction(shares[rank] - 1) / Fraction(of[rank]) for rank in shares if shares[rank] > limits[rank][0]]
    assert not takers or not givers or min(takers) > max(givers)


@given(st.lists(speeds, min_size=1, max_size=12), st.integers(0, 5000))
def test_without_limits_each_share_is_its_proportional_part_rounded(given_speeds, total):
    of = dict(enumerate(given_speeds))
    whole = sum(map(Fraction, given_speeds))
    shares = apportion(total, of, free_of_limits(len(of), total))
    assert all(abs(share - total * Fraction(of[rank]) / whole) < 1 for rank, share in shares.items())


@given(problems(of=st.just(3.7), equal_limits=True))
def test_equal_speeds_give_shares_at_most_one_apart(problem):
    shares = apportion(*problem)
    assert max(shares.values()) - min(shares.values()) <= 1


@given(problems(of=speeds, equal_limits=True))
def test_a_faster_worker_never_gets_less_than_a_slower_one(problem):
    _, of, _ = problem
    shares = apportion(*problem)
    assert all(shares[fast] >= shares[slow] for fast in of for slow in of if of[fast] > of[slow])


@given(problems(of=speeds), st.data())
def test_a_worker_that_becomes_faster_never_loses_samples(problem, data):
    total, of, limits = problem
    rank = data.draw(st.sampled_from(sorted(of)))
    faster = of | {rank: of[rank] * data.draw(st.floats(1.0, 100.0))}
    assert apportion(total, faster, limits)[rank] >= apportion(total, of, limits)[rank]


@given(st.permutations(range(8)), st.lists(speeds, min_size=8, max_size=8), st.integers(8, 5000))
def test_renaming_the_workers_renames_the_shares_where_no_two_remainders_tie(names, given_speeds, total):
    whole = sum(map(Fraction, given_speeds))
    assume(len({total * Fraction(speed) / whole % 1 for speed in given_speeds}) == 8)
    limits = free_of_limits(8, total)
    shares = apportion(total, dict(enumerate(given_speeds)), limits)
    renamed = apportion(total, {names[rank]: given_speeds[rank] for rank in range(8)}, limits)
    assert renamed == {names[rank]: share for rank, share in shares.items()}


@given(problems())
def test_the_order_in_which_workers_are_named_does_not_matter(problem):
    total, of, limits = problem
    assert apportion(total, dict(reversed(of.items())), dict(reversed(limits.items()))) == apportion(total, of, limits)


@given(problems())
def test_dividing_in_proportion_to_shares_gives_these_shares(problem):
    total, _, limits = problem
    shares = apportion(*problem)
    assert apportion(total, shares, limits) == shares


@given(problems(of=speeds), st.sampled_from([0.25, 0.5, 2.0, 1024.0]))
def test_the_unit_of_speed_does_not_matter(problem, unit):
    total, of, limits = problem
    assert apportion(total, {rank: speed * unit for rank, speed in of.items()}, limits) == apportion(total, of, limits)


@given(st.integers(0, 100), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6))
def test_shares_exist_exactly_where_the_limits_allow_them(total, bounds):
    limits = dict(enumerate(bounds))
    if is_possible(total, limits):
        assert sum(apportion(total, dict.fromkeys(limits, 1.0), limits).values()) == total
    else:
        with pytest.raises(ImpossibleShares):
            apportion(total, dict.fromkeys(limits, 1.0), limits)


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 100)))
def test_shared_ranges_cover_the_global_batch_once(shares):
    offsets = Shared().offsets(shares)
    taken = [position for rank in sorted(shares) for position in range(offsets[rank], offsets[rank] + shares[rank])]
    assert taken == list(range(sum(shares.values())))
