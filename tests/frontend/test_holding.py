"""Verdicts and rows that stand still."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from frontend.figures.holding import HOLD_S, SURE_S, hold, keep_rows

steps = st.lists(st.tuples(st.floats(0.01, 8.0), st.sampled_from(["balanced", "w3", "w5"])), min_size=1, max_size=80)

RECORDED = "bwbbwbwwbbwwbwbbwbwwwbbwbwbwbbwwbwbwbwbb"
"""A job at the border of balanced, one letter per second: 26 changes in 40 s."""


def shown_over(told):
    """(time, kind) of everything that is shown."""
    shown, now_s, seen = None, 0.0, []
    for after_s, kind in told:
        now_s += after_s
        shown = hold(shown, kind, f"{kind} at {now_s}", now_s)
        seen.append((now_s, shown.kind))
    return seen


@given(told=steps)
def test_verdict_changes_at_most_once_per_window(told):
    seen = shown_over(told)
    changes = [at for (at, kind), (_, before) in zip(seen[1:], seen, strict=False) if kind != before]
    assert all(later - earlier >= HOLD_S for earlier, later in itertools.pairwise(changes))


def test_job_at_the_border_keeps_its_verdict():
    assert {kind for _, kind in shown_over((1.0, letter) for letter in RECORDED)} == {"b"}


def test_what_has_become_so_is_shown():
    seen = shown_over([(1.0, "b")] * 20 + [(1.0, "w")] * 10)
    assert seen[-1][1] == "w"
    assert [kind for _, kind in seen].index("w") == 20 + SURE_S


@given(told=steps)
def test_what_lasts_is_shown_in_the_end(told):
    last = told[-1][1]
    assert shown_over([*told, *[(1.0, last)] * 25])[-1][1] == last


def test_numbers_are_renewed_while_a_verdict_holds():
    first = hold(None, "w3", "waits 40%", 0.0)
    assert hold(first, "w3", "waits 41%", 1.0).value == "waits 41%"
    assert hold(first, "balanced", "balanced", 1.0).value == "waits 40%"


@given(orders=st.lists(st.lists(st.floats(0, 1), min_size=12, max_size=12), min_size=1, max_size=10))
def test_rows_are_ordered_by_rank_and_those_that_stay_near_stay(orders):
    before: list[int] = []
    for order in orders:
        told = dict(enumerate(order))
        rows = keep_rows(before, told, 4)
        near = sorted(told, key=lambda rank: (told[rank], rank))[:6]
        assert rows == sorted(rows)
        assert len(rows) == 4
        assert len(set(before) & set(near)) <= len(set(before) & set(rows)) or len(set(before) & set(near)) > 4
        before = rows
