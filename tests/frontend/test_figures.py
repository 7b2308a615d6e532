"""What holds for figures whatever is in them."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.figures import FIGURES
from frontend.figures.comparison import compared_learning
from frontend.figures.convergence import convergence
from frontend.figures.pace import worker_speeds
from frontend.figures.points import MAX_POINTS, budget, extremes, mean_of_each, merged, numbers, plain, sampling_note
from frontend.figures.rows import Compared, Traces, View
from frontend.figures.theme import DARK, LIGHT
from frontend.figures.topology import Topology
from frontend.figures.workers import batch_sizes, iteration_times
from tests.frontend.rows import (
    heat_of,
    learning,
    no_ways,
    no_window,
    no_workers,
    nobody_ahead,
    not_predicting,
    not_waited,
    nothing_learned,
    nothing_predicted,
    two_workers,
    unmeasured,
    unplaced,
    worker,
)

EMPTY = {
    "traces": no_workers,
    "convergence": nothing_learned,
    "leads": nobody_ahead,
    "heat": lambda: heat_of([]),
    "window": no_window,
    "placement": unplaced,
    "waiting": not_waited,
    "others": no_ways,
    "predictions": nothing_predicted,
    "predictors": not_predicting,
    "measured": unmeasured,
    "logged": list,
    "topology": lambda: Topology(workers=(), servers=(), roster=4),
}


@pytest.mark.parametrize("name", FIGURES)
def test_without_data_there_is_a_sentence_and_no_picture(name: str) -> None:
    kind = FIGURES[name]
    figure = kind.draw(EMPTY[kind.rows](), View(x=kind.x[0]))
    assert figure["data"] == []
    assert figure["layout"]["meta"]["empty"].endswith(".")


def test_a_run_that_learns_nothing_has_no_blank_axes() -> None:
    timing = replace(learning(), loss=np.full(3, np.nan), scored_loss=np.empty(0), scored_accuracy=np.empty(0))
    for figure in (
        convergence(timing, View(x="time")),
        compared_learning([Compared(job=1, label="a", learned=timing, iteration_s=np.ones(3))], View(x="time")),
    ):
        assert figure["data"] == []
        assert "without training" in figure["layout"]["meta"]["empty"]


def test_before_the_first_score_accuracy_has_the_axis_that_it_will_have() -> None:
    none, whole = np.empty(0), np.empty(0, np.int64)
    unscored = replace(
        learning(),
        scored_iteration=whole,
        scored_elapsed_s=none,
        scored_samples=whole,
        scored_loss=none,
        scored_accuracy=none,
    )
    assert convergence(unscored, View(x="time"))["layout"]["yaxis2"]["range"] == [0, 1]
    (accuracy,) = (each for each in convergence(unscored, View(x="time"))["data"] if each["name"] == "Accuracy")
    assert np.isnan(plain(accuracy["y"])).tolist() == [True], "a point nowhere: an axis without points has no place"


def test_before_the_first_iteration_no_axis_waits_for_the_batch() -> None:
    """A line without points on an axis over another makes the library draw an axis with no ends."""
    scored = replace(
        learning(0),
        scored_iteration=np.array([0]),
        **{
            name: getattr(learning(), name)[:1]
            for name in ("scored_elapsed_s", "scored_samples", "scored_updates", "scored_loss", "scored_accuracy")
        },
    )
    figure = convergence(scored, View(x="time"))
    assert "Global batch" not in [trace["name"] for trace in figure["data"]]
    assert "yaxis3" not in figure["layout"]
    assert "yaxis3" in convergence(learning(), View(x="time"))["layout"]


def test_a_worker_keeps_its_colour_in_any_selection() -> None:
    alone = Traces(workers=two_workers().workers[1:], roster=2, width=1, reports=3)
    figure = batch_sizes(alone, View(x="iteration"))
    assert figure["data"][0]["line"]["color"] == LIGHT.category(1)


def test_workers_whose_colours_repeat_differ_by_their_dashes() -> None:
    styles = {(DARK.category(rank), DARK.dash(rank)) for rank in range(32)}
    assert len(styles) == 32


def test_waiting_alone_is_hatched() -> None:
    figure = iteration_times(two_workers(), View(x="iteration"))
    hatched = {trace["name"] for trace in figure["data"] if "fillpattern" in trace}
    solid = {trace["name"] for trace in figure["data"] if "fillcolor" in trace}
    assert (hatched, solid) == ({"Waiting"}, {"Compute", "Communication", "Coordination"})


def test_phases_of_a_strip_add_up_to_the_iteration() -> None:
    traces = two_workers()
    figure = iteration_times(traces, View(x="iteration"))
    strip = [plain(trace["y"]) for trace in figure["data"] if trace["stackgroup"] == "w0"]
    fast = traces.workers[0]
    whole = fast.compute_s + fast.communication_s + fast.waiting_s + fast.coordination_s
    assert np.sum(strip, axis=0) == pytest.approx(whole * 1000)


def test_strips_share_one_scale() -> None:
    layout = iteration_times(two_workers(), View(x="iteration"))["layout"]
    assert layout["yaxis"]["range"] == layout["yaxis2"]["range"] == [0, pytest.approx(261)]


def test_a_lone_stall_does_not_flatten_the_rest() -> None:
    stalled = worker(0, [64] * 6, [0.2, 0.2, 5.0, 0.1, 0.1, 0.1], [0.0] * 6)
    figure = iteration_times(Traces(workers=(stalled,), roster=1, width=1, reports=6), View(x="iteration"))
    assert figure["layout"]["yaxis"]["range"] == [0, pytest.approx(205 * 1.1)]
    assert figure["layout"]["meta"]["caption"].endswith("Single spikes of up to 5005 ms exceed the scale.")


def test_merged_iterations_show_their_lowest_and_highest_share() -> None:
    trace = worker(0, [64, 90], [0.1, 0.1], [0.0, 0.0])
    merged = type(trace)(**{name: getattr(trace, name) for name in trace.__slots__} | {"lowest": np.array([60, 80])})
    figure = batch_sizes(Traces(workers=(merged,), roster=1, width=5, reports=10), View(x="iteration"))
    assert plain(figure["data"][0]["y"]) == [60, 64, 80, 90]


def test_a_selection_of_many_workers_is_labelled_as_one() -> None:
    traces = Traces(workers=two_workers().workers, roster=96, width=1, reports=6)
    caption = batch_sizes(traces, View(x="iteration"))["layout"]["meta"]["caption"]
    assert "2 of 96 workers" in caption


def test_down_sampling_is_reported() -> None:
    figure = convergence(learning(48_000), View(x="iteration"))
    assert figure["layout"]["meta"]["sampling"] == "min\N{EN DASH}max of 48,000 points"
    assert sampling_note(10, 10) == ""
    assert sampling_note(2_000, 2_000, means=10) == "mean of every 10 iterations, from 2,000 reports"


def test_small_losses_can_be_distinguished_on_an_axis_that_forgets_the_zoom_of_the_other() -> None:
    linear, log = (convergence(learning(), View(x="time", scale=scale))["layout"] for scale in ("linear", "log"))
    assert [each["yaxis"].get("type") for each in (linear, log)] == [None, "log"]
    assert (linear["yaxis2"], linear["uirevision"]) == (log["yaxis2"], log["uirevision"].removesuffix(":log"))


def test_the_target_is_drawn_where_the_job_has_one() -> None:
    figure = convergence(learning(), View(x="time"))
    assert [(shape["y0"], shape["y1"]) for shape in figure["layout"]["shapes"]] == [(0.85, 0.85), (0, 0.85)]
    assert figure["layout"]["meta"]["caption"].endswith("reached after 0.8 s, 3 iterations, 384 samples, 1.5 epochs.")


@given(st.integers(1, 200))
def test_all_traces_together_stay_within_what_a_browser_redraws(traces: int) -> None:
    assert budget(traces) * traces <= MAX_POINTS
    assert budget(traces) % 2 == 0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=500), st.integers(1, 20))
def test_the_lowest_and_highest_points_survive_down_sampling(values: list[float], half: int) -> None:
    y = np.array(values)
    x, kept = extremes(np.arange(len(y)), y, 4 * half)
    assert len(kept) <= 4 * half
    assert (kept.min(), kept.max()) == (y.min(), y.max())
    assert list(x) == sorted(x)


@given(st.lists(st.integers(-(2**40), 2**40), max_size=20) | st.lists(st.floats(allow_nan=False), max_size=20))
def test_typed_arrays_carry_the_numbers(values: list[float]) -> None:
    assert plain(numbers(np.array(values))) == values


def test_a_caption_reports_which_workers_these_are() -> None:
    traces = replace(two_workers(), roster=64)
    captions = [
        batch_sizes(traces, View(x="iteration", **chosen))["layout"]["meta"]["caption"]
        for chosen in ({}, {"top": 2}, {"ranks": (0, 1)})
    ]
    which = [re.search("2 of 64 workers: ([^)]+)", caption) for caption in captions]
    assert [found and found[1] for found in which] == ["slowest and fastest", "slowest", "selected"]


def test_the_band_lies_around_the_median_workers_own_time_in_every_strip() -> None:
    layout = iteration_times(two_workers(), View(x="iteration"))["layout"]
    middle = 1000 * np.median([trace.busy_s.mean() for trace in two_workers().workers])
    assert [(band["yref"], band["y0"], band["y1"]) for band in layout["shapes"]] == [
        (axis, pytest.approx(0.9 * middle, abs=1e-3), pytest.approx(1.1 * middle, abs=1e-3)) for axis in ("y", "y2")
    ]
    alone = Traces(workers=two_workers().workers[:1], roster=1, width=1, reports=3)
    assert iteration_times(alone, View(x="iteration"))["layout"]["shapes"] == []


def test_speed_counts_the_given_time() -> None:
    fast = two_workers().workers[0]
    for metric, took_s in (("busy", fast.busy_s), ("whole", fast.whole_s)):
        figure = worker_speeds(two_workers(), View(x="iteration", metric=metric))
        assert plain(figure["data"][0]["y"]) == pytest.approx(fast.samples / took_s, abs=1e-3)


def test_epochs_need_the_size_of_the_training_split() -> None:
    known, unknown = learning(), replace(learning(), training_samples=None)
    assert plain(convergence(known, View(x="epoch"))["data"][0]["x"]) == [0.5, 1.0, 1.5]
    assert plain(convergence(known, View(x="update"))["data"][0]["x"]) == [2, 4, 6]
    assert "Epochs are unknown" in convergence(unknown, View(x="epoch"))["layout"]["meta"]["empty"]
    sides = [
        Compared(job=at, label=f"{at}", learned=side, iteration_s=np.ones(3))
        for at, side in enumerate((known, unknown))
    ]
    assert {trace["legendgroup"] for trace in compared_learning(sides, View(x="epoch"))["data"]} == {"0"}
    assert "Epochs are unknown" in compared_learning(sides[1:], View(x="epoch"))["layout"]["meta"]["empty"]


@pytest.mark.parametrize(("data_s", "phases"), [(0.0, 4), (0.0001, 4), (0.02, 5)])
def test_data_loading_is_drawn_apart_from_compute_where_it_is_noticeable(data_s: float, phases: int) -> None:
    traces = two_workers()
    fast, slow = traces.workers
    loading = replace(traces, workers=(replace(fast, data_s=np.zeros(3)), replace(slow, data_s=np.full(3, data_s))))
    drawn, before = (iteration_times(each, View(x="iteration"))["data"] for each in (loading, traces))
    assert len(drawn) == 2 * phases
    strip = {area["legendgroup"]: np.array(plain(area["y"])) for area in drawn[phases:]}
    compute = np.array(plain(before[4]["y"]))
    if phases == 5:
        assert [area["name"] for area in drawn[:2]] == ["Data loading", "Compute"]
        assert strip["data"].tolist() == [20.0] * 3
    np.testing.assert_allclose(strip["compute"] + strip.get("data", 0.0), compute)


@given(values=st.lists(st.floats(0, 1e6), max_size=40), every=st.integers(1, 9))
def test_groups_of_values_are_merged_and_none_is_left_out(values: list[float], every: int) -> None:
    array = np.array(values)
    groups = [values[start : start + every] for start in range(0, len(values), every)]
    assert merged(array, every, np.minimum).tolist() == [min(group) for group in groups]
    assert mean_of_each(array, every).tolist() == pytest.approx([sum(group) / len(group) for group in groups])
