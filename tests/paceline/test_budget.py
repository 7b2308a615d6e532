"""How often norms are measured: so seldom that they take little of the loop's time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.protocol.noise import EVERY
from paceline.budget import PART, SELDOM, Budget

ITERATIONS = 200_000


def measured(took_s: float, iteration_s: float, iterations: int) -> list[int]:
    """The iterations in which norms are measured."""
    budget, found = Budget(), []
    for iteration in range(iterations):
        if budget.allows(iteration):
            found.append(iteration)
            budget.spend(took_s, iteration_s)
    return found


@given(st.floats(1e-6, 1e-1), st.floats(1e-4, 1e2))
def test_norms_take_at_most_their_part_of_the_time_or_are_measured_most_seldom(
    took_s: float, iteration_s: float
) -> None:
    found = measured(took_s, iteration_s, 40 * SELDOM)
    settled = found[10:]
    apart = {later - earlier for earlier, later in pairwise(settled)}
    assert len(apart) == 1
    (every,) = apart
    assert EVERY <= every <= SELDOM
    assert took_s <= PART * iteration_s * every * (1 + 1e-9) or every == SELDOM


@pytest.mark.parametrize(("one_s", "other_s"), [(1e-4, 3e-4), (1e-5, 1e-2)])
def test_ranks_with_different_intervals_measure_in_common_iterations(one_s: float, other_s: float) -> None:
    often, seldom = (set(measured(took_s, 0.01, 40 * SELDOM)) for took_s in (one_s, other_s))
    assert {iteration for iteration in seldom if iteration >= 10 * SELDOM} <= often


def test_one_slow_measurement_only_doubles_the_interval() -> None:
    budget = Budget()
    budget.spend(1.0, 0.01)
    assert budget.allows(2 * EVERY)
