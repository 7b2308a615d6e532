"""Maintenance windows: when machines close and open."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.scheduling.maintenance import STRENGTH, Change, Machine, Window, change

DAY = Window(number=1, begins=100.0, ends=200.0, action="drain")


def machine(*windows: Window, state: str = "open", closed_by: int | None = None) -> Machine:
    return Machine(state=state, closed_by=closed_by, windows=windows)  # type: ignore[arg-type]


def applied(window: Window) -> Window:
    return Window(number=window.number, begins=window.begins, ends=window.ends, action=window.action, applied=True)


def test_a_window_closes_the_machine_at_its_begin_and_opens_it_at_its_end() -> None:
    assert change(machine(DAY), 99.0) is None
    assert change(machine(DAY), 100.0) == Change(to="drain", window=1, begun=(1,))
    closed = machine(applied(DAY), state="drain", closed_by=1)
    assert change(closed, 150.0) is None
    assert change(closed, 200.0) == Change(to="open", ended=(1,))


def test_what_a_user_closed_is_not_opened_and_not_made_weaker() -> None:
    cordon = Window(number=2, begins=100.0, ends=200.0, action="cordon")
    assert change(machine(cordon, state="drain"), 100.0) == Change(to=None, begun=(2,))
    assert change(machine(applied(cordon), state="drain"), 200.0) == Change(to=None, ended=(2,))
    assert change(machine(DAY, state="cordon"), 100.0) == Change(to="drain", window=None, begun=(1,))


def test_what_a_user_opens_during_a_window_stays_open() -> None:
    assert change(machine(applied(DAY)), 150.0) is None


def test_a_window_that_ends_leaves_the_machine_to_another_that_is_on() -> None:
    later = applied(Window(number=2, begins=150.0, ends=300.0, action="cordon"))
    found = change(machine(applied(DAY), later, state="drain", closed_by=1), 200.0)
    assert found == Change(to="cordon", window=2, ended=(1,))


def test_a_window_that_was_missed_entirely_only_ends() -> None:
    assert change(machine(DAY), 500.0) == Change(to=None, ended=(1,))


WINDOWS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 50), st.sampled_from(["cordon", "drain"])), min_size=1, max_size=5
).map(
    lambda rows: [
        Window(number=number, begins=float(begin), ends=float(begin + lasts), action=action)  # type: ignore[arg-type]
        for number, (begin, lasts, action) in enumerate(rows, start=1)
    ]
)


@given(WINDOWS, st.integers(1, 7))
def test_a_machine_is_closed_exactly_while_a_window_is_on_however_seldom_one_looks(
    windows: list[Window], every: int
) -> None:
    rows = {each.number: each for each in windows}
    state, closed_by = "open", None
    for now in range(0, 120, every):
        found = change(machine(*rows.values(), state=state, closed_by=closed_by), float(now))
        if found is not None:
            rows = {n: applied(row) if n in found.begun else row for n, row in rows.items() if n not in found.ended}
            if found.to is not None:
                state, closed_by = found.to, found.window
        on = [each for each in windows if each.begins <= now < each.ends]
        assert (state != "open") == bool(on)
        assert STRENGTH[state] >= max((STRENGTH[each.action] for each in on), default=0)
