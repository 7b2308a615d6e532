"""Decisions are marked on the charts that share an axis with them."""

from datetime import timedelta

import pytest

from controlplane.jobs.models import Decision, Job
from frontend.build import build_figure
from frontend.figures.marks import MOST, marked
from frontend.figures.points import plain, smoothed
from frontend.figures.rows import Mark, View
from frontend.figures.verbatim import LINE
from frontend.figures.workers import batch_sizes, iteration_times
from frontend.queries.marks import marks
from tests.frontend import factories
from tests.frontend.factories import EVEN, START, Pace
from tests.frontend.rows import two_workers


def a_mark(at: float, words: str = "batching becomes uniform") -> Mark:
    return Mark(elapsed_s=at, iteration=4 * at, samples=1000 * at, words=words)


def drawn(*given: Mark, x: str = "iteration", **view: str) -> dict:
    seen = View(x=x, **view)
    return marked(batch_sizes(two_workers(), seen), given, seen)


@pytest.mark.parametrize(("x", "place"), [("iteration", 2.0), ("time", 0.5), ("samples", 500.0)])
def test_a_mark_is_drawn_at_its_value_on_any_axis(x: str, place: float) -> None:
    figure = drawn(a_mark(0.5), x=x)
    trace = figure["data"][-1]
    assert (trace["uid"], plain(trace["x"]), trace["text"]) == ("marks", [place], ["batching becomes uniform"])
    (line,) = figure["layout"]["shapes"]
    assert (line["x0"], line["x1"], line["yref"]) == (place, place, "paper")


def test_the_room_that_marks_take_does_not_begin_an_axis_below_zero() -> None:
    assert drawn(a_mark(0.0))["layout"]["xaxis"]["rangemode"] == "nonnegative"


def test_marks_at_one_place_are_one_and_only_the_latest_are_drawn() -> None:
    both = drawn(a_mark(0.5, "a"), a_mark(0.5, "b"))["data"][-1]
    assert both["text"] == [f"a{LINE}b"]
    many = drawn(*(a_mark(float(k)) for k in range(2 * MOST)))["data"][-1]
    assert plain(many["x"])[0] == 4.0 * MOST


def test_one_switch_takes_them_off_and_an_empty_chart_has_none() -> None:
    plainly = batch_sizes(two_workers(), View(x="iteration"))
    assert drawn(a_mark(0.5), marks="off") == plainly
    nothing = {"data": [], "layout": {}}
    assert marked(nothing, [a_mark(1.0)], View()) == nothing


def test_smoothing_keeps_the_sum_of_a_constant_and_the_length() -> None:
    seen = View(x="iteration", smooth=3)
    figure = iteration_times(two_workers(), seen)
    compute = next(trace for trace in figure["data"] if trace["meta"] == "w0 compute (ms)")
    assert plain(compute["y"]) == pytest.approx([64.0, 230 / 3, 83.0])
    values = plain(batch_sizes(two_workers(), seen)["data"][0]["y"])
    assert list(smoothed(two_workers().workers[0].compute_s, 1)) == [0.064, 0.064, 0.102]
    assert values == [64, 64, 102], "a share is what it is"


@pytest.fixture
def job(db: None) -> Job:
    job = factories.make_job()
    factories.make_reports(job, [Pace(shares=EVEN)] * 20)
    return job


def decided(job: Job, seconds: float, kind: str, reason: str, iteration: int | None = None, **payload: object) -> None:
    number = Decision.objects.count() + 1
    row = factories.make_decision(job, number, kind, payload, reason=reason, iteration=iteration)
    row.at = START + timedelta(seconds=seconds)
    row.save()


def test_what_operators_and_policies_change_and_who_comes_and_goes_is_marked(job: Job) -> None:
    length_s = Pace(shares=EVEN).length_s
    decided(job, 0.0, "move-job", "4 workers are ready", state="running")
    decided(job, 2 * length_s, "move-job", "paused by ada", state="paused")
    decided(job, 3 * length_s, "move-job", "resumed by ada", state="running")
    decided(job, 3.1 * length_s, "move-job", "so", state="running", awaited="a boundary")
    decided(job, 4 * length_s, "set-shares", "speeds", iteration=4, shares={})
    decided(job, 4 * length_s, "leave-out", "w3 was excluded by ada", rank=3)
    decided(job, 5 * length_s, "move-process", "ended by signal 9", role="worker", index=2, state="lost")
    decided(job, 6 * length_s, "move-process", "hello", role="worker", index=2, state="ready", instance="w2.0.2")
    found = marks(job)
    assert [(round(each.iteration), each.words.partition(":")[0]) for each in found] == [
        (1, "job is paused, awaits "[:13]),
        (2, "job is running"),
        (3, "w3 excluded"),
        (4, "w2 is lost"),
        (5, "w2 is ready"),
    ]
    assert b"w3 was excluded by ada" in build_figure("convergence", job, {})
    assert b"w3 was excluded by ada" not in build_figure("convergence", job, {"marks": "off"})
    assert b"w3 was excluded by ada" not in build_figure("timeline", job, {})


def test_a_job_that_has_not_begun_has_no_marks(db: None) -> None:
    assert marks(factories.make_job(started_at=None)) == ()


def test_the_slowest_workers_can_be_picked(job: Job) -> None:
    factories.make_reports(job, [Pace(shares=EVEN)] * 4, first=20)
    figure = build_figure("batch-size", job, {"top": "2"})
    assert b'"name":"w3"' in figure
    assert b'"name":"w0"' not in figure


def test_the_latest_marks_are_shown_however_many_decisions_came_before(job: Job) -> None:
    """Marks of a long job's first hours do not keep later ones from its charts."""
    rows = [
        Decision(
            job=job,
            incarnation=0,
            sequence=number,
            at=START + timedelta(milliseconds=number),
            kind="move-process",
            payload={"role": "worker", "index": 1, "state": "starting", "instance": "w1.0.1"},
        )
        for number in range(1, 20 * MOST + 2)
    ]
    Decision.objects.bulk_create(rows)
    decided(job, 3.0, "move-job", "paused by ada", state="paused")
    decided(job, 4.0, "move-job", "so", state="paused", awaited="a boundary")
    decided(job, 5.0, "leave-out", "w3 was excluded by ada", rank=3)
    assert [mark.words.partition(":")[0] for mark in marks(job)][-2:] == ["job is paused", "w3 excluded"]
