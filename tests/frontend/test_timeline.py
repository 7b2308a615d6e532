"""The timeline: bars that add up, who came last, and windows that stay within the job."""

import pytest

from frontend.figures.rows import View
from frontend.figures.timeline import chrome_trace, last_arrivals, phases, timeline, waiting_shares
from frontend.queries.timeline import MAX_ITERATIONS, window
from tests.frontend import factories
from tests.frontend.rows import two_iterations


def test_bars_of_a_worker_follow_one_another_to_the_iterations_end() -> None:
    for stay in two_iterations().stays:
        parts = list(phases(stay))
        ends = [start + seconds for _, start, seconds in parts]
        assert [start for _, start, _ in parts][1:] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(stay.ended_s)


def test_the_last_to_arrive_is_the_one_the_others_waited_for() -> None:
    assert {k: stay.rank for k, stay in last_arrivals(two_iterations().stays).items()} == {4: 1, 5: 0}


def test_waiting_in_the_caption_is_the_sum_of_the_hatched_bars() -> None:
    figure = timeline(two_iterations(), View(x="time"))
    hatched = next(trace for trace in figure["data"] if trace["name"] == "Waiting")
    waiting, whole = waiting_shares(two_iterations().stays)
    assert sum(hatched["x"]) == pytest.approx(waiting * 1000)
    assert f"{waiting:.3g} s of {whole:.3g} worker-seconds" in figure["layout"]["meta"]["caption"]


def test_only_waiting_is_hatched() -> None:
    bars = [trace for trace in timeline(two_iterations(), View())["data"] if trace["type"] == "bar"]
    assert [bar["name"] for bar in bars if "pattern" in bar["marker"]] == ["Waiting"]


def test_a_trace_for_perfetto_has_every_phase_in_microseconds() -> None:
    trace = chrome_trace(two_iterations(), 7)
    compute = [event for event in trace["traceEvents"] if event["name"] == "Compute"]
    assert [(event["tid"], event["dur"]) for event in compute] == [(0, 67000), (1, 256000), (0, 130000), (1, 68000)]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("view", "shown"),
    [
        (View(), (50, 59)),
        (View(first=3, count=5), (3, 7)),
        (View(first=999), (50, 59)),
        (View(first=0, count=500), (0, MAX_ITERATIONS - 1)),
    ],
)
def test_a_window_stays_within_the_job(view: View, shown: tuple[int, int]) -> None:
    found = window(factories.demo_job(), view)
    assert (found.first, found.last, found.newest) == (*shown, 59)
    assert {stay.iteration for stay in found.stays} == set(range(shown[0], shown[1] + 1))
