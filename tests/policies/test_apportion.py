import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.core.choices import ShareRequest
from controlplane.policies.batching.apportion import (
    ImpossibleShares,
    apportion,
    divide_evenly,
    is_possible,
    limits_of,
)

FREE = (1, 256)


def test_shares_of_the_papers_speeds_are_proportional_to_them() -> None:
    speeds = {0: 1000.0, 1: 1000.0, 2: 500.0, 3: 250.0}
    assert apportion(256, speeds, dict.fromkeys(speeds, FREE)) == {0: 93, 1: 93, 2: 47, 3: 23}


def test_the_sample_that_is_left_goes_to_the_largest_remainder() -> None:
    # Parts of 10: 1.4, 4.3 and 4.3, so one sample is left over and 0.4 is the largest remainder.
    assert apportion(10, {0: 14, 1: 43, 2: 43}, dict.fromkeys(range(3), FREE)) == {0: 2, 1: 4, 2: 4}


def test_ties_go_to_the_lowest_rank() -> None:
    assert apportion(10, {7: 1.0, 3: 1.0, 5: 1.0, 1: 1.0}, dict.fromkeys([7, 3, 5, 1], FREE)) == {
        1: 3,
        3: 3,
        5: 2,
        7: 2,
    }


def test_what_an_upper_limit_cuts_off_is_divided_over_the_others_in_proportion() -> None:
    limits = {0: (1, 40), 1: (1, 100), 2: (1, 100)}
    assert apportion(100, {0: 6, 1: 3, 2: 1}, limits) == {0: 40, 1: 45, 2: 15}


def test_what_a_lower_limit_adds_is_taken_from_the_others_in_proportion() -> None:
    limits = {0: (1, 100), 1: (1, 100), 2: (40, 100)}
    assert apportion(100, {0: 6, 1: 3, 2: 1}, limits) == {0: 40, 1: 20, 2: 40}


def test_a_limit_that_binds_only_after_redistribution_is_respected() -> None:
    limits = {0: (1, 40), 1: (1, 44), 2: (1, 100)}
    assert apportion(100, {0: 6, 1: 3, 2: 1}, limits) == {0: 40, 1: 44, 2: 16}


def test_the_slowest_worker_still_gets_one_sample() -> None:
    assert apportion(10, {0: 1e9, 1: 1e-9}, dict.fromkeys(range(2), (1, 10))) == {0: 9, 1: 1}


def test_workers_of_weight_zero_take_what_the_limits_keep_from_the_others() -> None:
    assert apportion(10, {0: 1.0, 1: 0.0, 2: 0.0}, {0: (1, 4), 1: (1, 10), 2: (1, 10)}) == {0: 4, 1: 3, 2: 3}


@given(weights=st.lists(st.integers(0, 1000), min_size=1, max_size=20), total=st.integers(0, 5000))
def test_whole_weights_give_the_shares_of_the_same_floats(weights: list[int], total: int) -> None:
    whole = dict(enumerate(weights))
    limits = dict.fromkeys(whole, (0, 5000))
    assert apportion(total, whole, limits) == apportion(total, {r: float(w) for r, w in whole.items()}, limits)


def test_without_any_weight_shares_are_even() -> None:
    assert apportion(7, {0: 0.0, 1: 0.0, 2: 0.0}, dict.fromkeys(range(3), (1, 7))) == {0: 3, 1: 2, 2: 2}


def test_weights_at_both_ends_of_the_float_range_are_exact() -> None:
    assert apportion(9, {0: 5e-324, 1: 1.7e308, 2: 1.7e308}, dict.fromkeys(range(3), (0, 9))) == {0: 0, 1: 5, 2: 4}


@pytest.mark.parametrize(
    ("total", "limits", "sentence"),
    [
        (
            256,
            {0: (1, 100), 1: (1, 20)},
            "256 samples cannot be divided over 2 workers: their upper limits sum to 120 (w0 100, w1 20)",
        ),
        (
            3,
            {0: (1, 9), 1: (4, 9)},
            "3 samples cannot be divided over 2 workers: their lower limits sum to 5 (w0 1, w1 4)",
        ),
        (9, {0: (1, 9), 1: (5, 4)}, "w1: its lower limit 5 is above its upper limit 4"),
        (9, {}, "9 samples cannot be divided over 0 workers: their upper limits sum to 0 ()"),
    ],
)
def test_impossible_limits_are_named(total: int, limits: dict[int, tuple[int, int]], sentence: str) -> None:
    with pytest.raises(ImpossibleShares) as raised:
        apportion(total, dict.fromkeys(limits, 1.0), limits)
    assert str(raised.value) == sentence
    assert not is_possible(total, limits)


def test_a_long_list_of_limits_is_cut_short() -> None:
    with pytest.raises(ImpossibleShares, match=r"sum to 12 \(w0 1, .*w7 1 and 4 more\)$"):
        apportion(3, dict.fromkeys(range(12), 1.0), dict.fromkeys(range(12), (1, 3)))


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_speed_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=rf"w1: found weight {weight}, expected a finite number of at least 0"):
        apportion(9, {0: 1.0, 1: weight}, dict.fromkeys(range(2), FREE))


@given(
    limits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), min_size=1, max_size=8),
    total=st.integers(0, 60),
)
def test_an_even_division_is_that_of_equal_weights(limits: list[tuple[int, int]], total: int) -> None:
    current = dict.fromkeys(reversed(range(len(limits))), 1)
    request = ShareRequest(iteration=0, total=total, current=current, limits=dict(enumerate(limits)))
    try:
        expected = apportion(total, current, limits_of(request))
    except ImpossibleShares as error:
        with pytest.raises(ImpossibleShares, match=re.escape(str(error))):
            divide_evenly(request)
        return
    assert list(divide_evenly(request).items()) == list(expected.items())
