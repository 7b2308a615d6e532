"""How long a coordinator waits for further reports before it reads."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.runtime.gathering import LEAST_S, MOST_S, PART, Gathering

WORKERS = 100


@dataclass(frozen=True)
class Ledger:
    iteration: int
    missing: int


def read(gathering: Gathering, iteration: int, missing: int, at_s: float) -> float:
    ledger: Any = Ledger(iteration, missing)
    return gathering.pause_s(ledger, at_s)


def after_an_iteration(spread_s: float) -> Gathering:
    """Its reports came within so many seconds, and the next iteration is open."""
    gathering = Gathering()
    read(gathering, 1, WORKERS, 0.0)
    read(gathering, 1, WORKERS - 1, 1.0)
    read(gathering, 2, WORKERS, 1.0 + spread_s)
    return gathering


def test_the_wait_is_a_part_of_the_time_that_the_missing_reports_should_take() -> None:
    gathering = after_an_iteration(spread_s=0.2)
    waits = [read(gathering, 2, missing, 2.0) for missing in (99, 50, 10, 4, 1)]
    assert waits == pytest.approx([PART * 0.2 * 0.99, PART * 0.2 * 0.5, PART * 0.2 * 0.1, 0.0, 0.0])


def test_it_has_a_limit() -> None:
    assert read(after_an_iteration(spread_s=60.0), 2, 99, 100.0) == MOST_S


def test_reports_that_came_at_once_are_read_at_once() -> None:
    assert read(after_an_iteration(spread_s=0.001), 2, 99, 2.0) == 0.0


def test_the_last_report_is_read_at_once() -> None:
    gathering = after_an_iteration(spread_s=60.0)
    assert [read(gathering, 2, missing, 100.0) for missing in (2, 1)] == [MOST_S, 0.0]


def test_entries_that_are_no_reports_do_not_begin_an_iteration() -> None:
    gathering = after_an_iteration(spread_s=0.2)
    assert read(gathering, 2, WORKERS, 1.5) == 0.0
    read(gathering, 2, 50, 3.0)
    read(gathering, 3, WORKERS, 3.001)
    assert read(gathering, 3, 50, 4.0) == 0.0


def test_a_wait_is_not_taken_for_the_pace_of_reports() -> None:
    gathering = after_an_iteration(spread_s=0.2)
    now_s, waits = 2.0, []
    for iteration in range(2, 6):  # all reports come at once; one is read apart from the others
        waits.append(read(gathering, iteration, WORKERS - 1, now_s))
        read(gathering, iteration + 1, WORKERS, now_s + waits[-1])
        now_s += 1.0
    assert waits == [pytest.approx(PART * 0.2 * 0.99), 0.0, 0.0, 0.0]


def test_the_first_iteration_waits_for_nothing() -> None:
    gathering = Gathering()
    assert [read(gathering, 1, missing, 10.0 - missing / 10) for missing in (100, 60, 20)] == [0.0, 0.0, 0.0]


def test_an_iteration_that_nobody_saw_begin_says_nothing_of_the_next() -> None:
    gathering = after_an_iteration(spread_s=0.2)
    read(gathering, 3, WORKERS, 2.0)  # the second was read as a whole
    assert read(gathering, 3, 50, 3.0) == 0.0
    gathering = after_an_iteration(spread_s=0.2)
    read(gathering, 2, 50, 2.0)
    read(gathering, 4, WORKERS, 3.0)  # the third was read along with the end of the second
    assert read(gathering, 4, 50, 4.0) == 0.0


def test_where_any_report_may_lead_to_a_decision_none_waits() -> None:
    gathering = after_an_iteration(spread_s=0.2)
    assert gathering.pause_s(None, 2.0) == 0.0
    read(gathering, 3, WORKERS, 2.5)
    assert read(gathering, 3, 50, 3.0) == 0.0


@given(st.floats(0.0, 100.0), st.integers(1, WORKERS - 1))
def test_no_wait_is_longer_than_its_part_of_the_spread(spread_s: float, missing: int) -> None:
    wait_s = read(after_an_iteration(spread_s), 2, missing, 1000.0)
    assert wait_s == 0.0 or LEAST_S <= wait_s <= min(MOST_S, PART * spread_s)
