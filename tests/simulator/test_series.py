import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.simulator.errors import ScenarioError, SeriesEnded
from controlplane.simulator.series import Series

VALUES = st.lists(st.floats(min_value=0.0, max_value=100.0), min_size=1, max_size=20).filter(lambda v: sum(v) > 0.1)


@given(values=VALUES, start=st.floats(0.0, 0.9), part=st.floats(0.01, 1.0), repeats=st.booleans())
def test_what_finishes_at_a_time_is_what_is_done_by_then(
    values: list[float], start: float, part: float, repeats: bool
) -> None:
    series = Series(values, step_s=0.5, name="speed", repeats=repeats)
    start_s = start * series.end_s
    left = series.done_by(series.end_s) - series.done_by(start_s)
    amount = left * part
    if amount < 1e-3:
        return
    end_s = series.finish_s(start_s, amount)
    assert end_s >= start_s
    assert series.done_by(min(end_s, series.end_s)) - series.done_by(start_s) == pytest.approx(amount, rel=1e-6)


def test_work_takes_as_long_as_the_rate_implies() -> None:
    series = Series([10.0, 0.0, 5.0], step_s=1.0, name="speed")
    assert series.finish_s(0.0, 10.0) == 1.0
    assert series.finish_s(0.5, 10.0) == 3.0
    assert series.finish_s(0.5, 7.5) == 2.5


def test_a_series_that_repeats_begins_anew() -> None:
    series = Series([10.0, 5.0], step_s=1.0, name="speed", repeats=True)
    assert series.finish_s(1.0, 20.0) == pytest.approx(4.0)
    assert series.at(5.5) == 5.0


def test_a_series_that_ends_early_reports_whose_it_is_and_what_to_do() -> None:
    series = Series([10.0], step_s=60.0, name="machine of w3, speed")
    with pytest.raises(SeriesEnded, match=r"machine of w3, speed: .* end at 60 s, .* longer series, or let it repeat"):
        series.finish_s(30.0, 1000.0)
    with pytest.raises(SeriesEnded):
        series.at(60.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [([], "at least one value"), ([1.0, -2.0], r"v\[1\]: found -2.0, expected 0 or more")],
)
def test_impossible_values_are_refused(values: list[float], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        Series(values, step_s=1.0, name="v")
