"""The timeline: bars that add up, who came last, and windows that stay within the job."""

import itertools
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.telemetry.columns import Block
from controlplane.telemetry.metrics import ITERATION
from frontend.figures.rows import View
from frontend.figures.timeline import chrome_trace, last_arrivals, phases, timeline, waiting_shares
from frontend.queries.chaining import chained
from frontend.queries.lanes import lanes
from frontend.queries.timeline import MAX_ITERATIONS, window
from frontend.queries.waiting import waiting
from tests.frontend import factories
from tests.frontend.factories import EVEN, Pace
from tests.frontend.rows import two_iterations
from tests.telemetry.reports import change_reports


def test_bars_of_a_worker_follow_one_another_to_the_iterations_end() -> None:
    for span in two_iterations().spans:
        parts = list(phases(span))
        ends = [start + seconds for _, start, seconds in parts]
        assert [start for _, start, _ in parts][1:] == pytest.approx(ends[:-1])
        assert ends[-1] == pytest.approx(span.ended_s)


def test_the_last_to_arrive_is_the_one_the_others_waited_for() -> None:
    assert {k: span.rank for k, span in last_arrivals(two_iterations().spans).items()} == {4: 1, 5: 0}


def test_waiting_in_the_caption_is_the_sum_of_the_hatched_bars() -> None:
    figure = timeline(two_iterations(), View(x="time"))
    hatched = next(trace for trace in figure["data"] if trace["name"] == "Waiting")
    waiting, whole = waiting_shares(two_iterations().spans)
    assert sum(hatched["x"]) == pytest.approx(waiting * 1000)
    assert f"{waiting:.3g} s of {whole:.3g} worker-seconds" in figure["layout"]["meta"]["caption"]


def test_only_waiting_is_hatched() -> None:
    bars = [trace for trace in timeline(two_iterations(), View())["data"] if trace["type"] == "bar"]
    assert [bar["name"] for bar in bars if "pattern" in bar["marker"]] == ["Waiting"]


@pytest.mark.parametrize(("data_s", "loading"), [(0.0, False), (0.0005, False), (0.06, True)])
def test_data_loading_is_a_bar_of_its_own_before_compute_where_it_is_noticeable(data_s: float, loading: bool) -> None:
    spans = tuple(replace(span, data_s=data_s, compute_s=span.compute_s - data_s) for span in two_iterations().spans)
    bars = {bar["name"]: bar for bar in timeline(replace(two_iterations(), spans=spans), View())["data"][:-1]}
    assert list(bars) == ["Coordination", "Waiting", "Pull", *["Data loading"] * loading, "Compute", "Push"]
    lengths = np.add(bars["Compute"]["x"], bars["Data loading"]["x"] if loading else 0.0)
    assert lengths.tolist() == pytest.approx([67.0, 256.0, 130.0, 68.0])
    events = chrome_trace(replace(two_iterations(), spans=spans), 7)["traceEvents"]
    assert ("Data loading" in {event["name"] for event in events}) == (data_s > 0)


@pytest.mark.django_db
def test_iterations_whose_data_loading_is_unknown_are_drawn_whole() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 12)
    before, lanes_before, cost_before = window(job, View()), lanes(job), waiting(job)
    change_reports(lambda _: {"data_s": None})
    assert window(job, View()) == before
    assert lanes(job) == lanes_before
    assert waiting(job) == cost_before
    assert not lanes_before.is_loading


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
    assert {span.iteration for span in found.spans} == set(range(shown[0], shown[1] + 1))


def block(lengths_ms: list[int], late_ms: list[int], *, generation: list[int] | None = None) -> Block:
    """What a worker reported that began at 0, each report so late."""
    whole = np.array(lengths_ms, np.float64) / 1000
    zeros = np.zeros(len(whole))
    return {
        "iteration": np.arange(len(whole)),
        "generation": np.array(generation or [1] * len(whole)),
        "at_ms": np.cumsum(lengths_ms) + np.array(late_ms),
        **dict.fromkeys(ITERATION, zeros),
        "compute_s": whole,
    }


def test_a_late_report_moves_no_bar() -> None:
    chain = chained(block([100, 100, 100, 100], [3, 48, 3, 21]))
    assert chain.ended_ms.tolist() == [103.0, 203.0, 303.0, 403.0]
    assert chain.late_ms.tolist() == [0.0, 45.0, 0.0, 18.0]


def test_a_worker_that_returns_is_placed_anew() -> None:
    """Between the second and the third iteration it was gone for 5 s."""
    away = block([100, 100, 100, 100], [3, 9, 5_007, 5_003], generation=[1, 1, 2, 2])
    assert chained(away).ended_ms.tolist() == [103.0, 203.0, 5_303.0, 5_403.0]


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(0, 60), st.booleans()), min_size=1, max_size=60),
)
def test_bars_never_overlap_and_end_before_their_reports(parts: list[tuple[int, int, bool]]) -> None:
    lengths, late, renewed = (list(each) for each in zip(*parts, strict=True))
    found = block(lengths, late, generation=np.cumsum(renewed).tolist())
    chain = chained(found)
    began = chain.ended_ms - 1000 * found["compute_s"]
    assert (began[1:] >= chain.ended_ms[:-1] - 1e-6).all()
    assert (chain.late_ms >= -1e-6).all()
    if not any(renewed[1:]):
        assert chain.ended_ms == pytest.approx(np.cumsum(lengths) + min(late))


@pytest.mark.django_db
def test_jitter_of_reports_neither_overlaps_bars_nor_names_another_last() -> None:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 40)
    change_reports(lambda row: {"at": row.at + timedelta(milliseconds=(7 * row.rank + 13 * row.iteration) % 45)})
    found = window(job, View(first=10, count=10))
    for rank in found.ranks:
        mine = sorted((span for span in found.spans if span.rank == rank), key=lambda span: span.iteration)
        gaps = [after.ended_s - after.whole_s - before.ended_s for before, after in itertools.pairwise(mine)]
        assert gaps == pytest.approx([0.0] * 9, abs=1e-6)


def test_workers_closer_than_they_can_be_placed_are_not_distinguished() -> None:
    spans = two_iterations().spans
    ends = {k: sorted(span.ended_s for span in spans if span.iteration == k) for k in (4, 5)}
    apart = ends[4][1] - ends[4][0]
    assert 4 in last_arrivals(spans, apart * 0.99)
    assert 4 not in last_arrivals(spans, apart * 1.01)
