"""Deadlines of tests: those of an idle machine, and longer ones where others share it."""

import pytest

from tests.support.waiting import LONGEST_S, MOST, eventually, rest_s, slowness


@pytest.mark.parametrize(("load", "cores", "times"), [(0.0, 2, 1.0), (1.5, 2, 1.0), (4.0, 2, 2.0), (50.0, 2, MOST)])
def test_a_deadline_is_as_much_longer_as_processes_share_a_core(load: float, cores: int, times: float) -> None:
    assert slowness(load=load, cores=cores) == times


def test_what_does_not_come_is_named() -> None:
    with pytest.raises(AssertionError, match=r"the bus: not within 0 s \(0 s on an idle machine\)"):
        eventually(lambda: False, what="the bus", seconds=0.0)


@pytest.mark.parametrize(("took_s", "every", "rest"), [(0.0, 0.02, 0.02), (0.05, 0.1, 0.2), (9.0, 0.1, LONGEST_S)])
def test_looks_that_take_long_are_farther_apart(took_s: float, every: float, rest: float) -> None:
    assert rest_s(took_s, every) == pytest.approx(rest)
