"""The heat map: who stands out, and what a cell keeps."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Process
from controlplane.telemetry.folding import fold
from controlplane.telemetry.simulations import simulation_run, simulation_submit
from frontend.figures.heat import STROKES, heat_map, over_median, pattern
from frontend.figures.rows import View
from frontend.queries.heat import heat, machine_classes
from tests.frontend import factories
from tests.frontend.rows import heat_of, of_two_kinds, two_rows

EVEN = [[0.1] * 6 for _ in range(5)]
LABELS = tuple(f"w{rank}" for rank in range(5))


def test_a_slow_machine_is_a_row() -> None:
    slow = np.array(EVEN)
    slow[3] *= 3
    assert pattern(slow, LABELS) == "Rows stand out (w3): slow machines rather than single events."


def test_a_bad_moment_of_the_cluster_is_a_column() -> None:
    stalled = np.array(EVEN)
    stalled[:, 2] *= 5
    assert pattern(stalled, LABELS) == "1 column stands out: all workers were slow at once."


def test_even_workers_leave_nothing_to_see() -> None:
    assert pattern(np.array(EVEN), LABELS) == "No row or column stands out."


def test_a_machine_that_was_slow_until_the_shares_moved_is_reported_with_its_end() -> None:
    helped = np.full((5, 40), 0.1)
    helped[1, :10] *= 2
    assert pattern(helped, LABELS) == "w1 stands out up to iteration 10, and no row does after it."
    helped[4, :9] *= 3
    told = pattern(helped, LABELS, np.arange(0, 200, 5))
    assert told == "w1, w4 stand out up to iteration 50, and no row does after it."


def test_a_slow_start_of_all_is_a_warm_up() -> None:
    warming = np.full((5, 40), 0.1)
    warming[:, :10] *= 1.6
    told = "All workers were slower up to iteration 10 (1.6 times the later time): warm-up."
    assert pattern(warming, LABELS) == told


def test_a_start_longer_than_the_rest_is_none() -> None:
    turned = np.full((5, 40), 0.1)
    turned[1, :25] *= 1.2
    turned[:, :25] *= 1.6
    assert "up to iteration" not in pattern(turned, LABELS)


def test_single_outliers_across_the_map_point_to_the_data() -> None:
    skewed = np.full((5, 20), 0.1)
    for place in range(10):
        skewed[place % 5, 2 * place] = 0.4
    assert pattern(skewed, LABELS).startswith("Single cells stand out across the map: the cause is the processed data")
    skewed[1:] = 0.1
    assert pattern(skewed, LABELS) == "No row or column stands out."


def test_two_iterations_are_no_pattern() -> None:
    assert pattern(np.array(EVEN)[:, :2], LABELS) == ""


@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3), min_size=1, max_size=9))
def test_the_middle_worker_of_each_column_is_at_one(rows: list[list[float]]) -> None:
    assert np.median(over_median(np.array(rows)), axis=0) == pytest.approx(1.0)


def test_who_reported_nothing_is_left_blank() -> None:
    cells = heat_map(two_rows(), View(x="iteration"))["data"][0]["z"]
    assert (cells[0][3], cells[1][3]) == (1.0, None)


def test_no_data_is_struck_through_and_a_cell_at_the_median_is_not() -> None:
    figure = heat_map(two_rows(), View(x="iteration"))
    (strokes,) = figure["layout"]["shapes"]
    assert (strokes["path"], strokes["layer"]) == ("M2.5,1.5L3.5,0.5", "below")
    assert "Hatched cells have no report." in figure["layout"]["meta"]["caption"]
    whole = heat_map(heat_of(EVEN), View(x="iteration"))
    assert whole["layout"]["shapes"] == []
    assert "Struck through" not in whole["layout"]["meta"]["caption"]


@given(st.integers(1, 4), st.integers(1, 2_000), st.integers(1, 50))
def test_strokes_stay_few_and_within_the_map(rows: int, columns: int, width: int) -> None:
    figure = heat_map(heat_of([[float("nan")] * columns] * rows, width=width), View(x="iteration"))
    strokes = re.findall(r"M([-\d.e+]+),[-\d.]+L([-\d.e+]+),[-\d.]+", figure["layout"]["shapes"][0]["path"])
    assert rows <= len(strokes) <= rows * STROKES
    assert float(strokes[0][0]) == -width / 2
    assert float(strokes[-1][1]) == pytest.approx((columns - 0.5) * width, rel=1e-5)


def test_rows_of_one_kind_of_machine_are_grouped_under_its_name() -> None:
    figure = heat_map(of_two_kinds(), View(x="iteration"))
    assert figure["data"][0]["y"] == [["fast", "fast", "slow"], ["w0 machine-0", "w1 machine-1", "w2 machine-2"]]
    assert "Rows are grouped by machine class." in figure["layout"]["meta"]["caption"]
    go.Figure(json.loads(json.dumps(figure)))


def test_absolute_times_are_in_milliseconds() -> None:
    figure = heat_map(two_rows(), View(x="iteration", metric="work", scale="absolute"))
    assert figure["data"][0]["z"][0] == [64, 64, 64, 102]


def test_merged_columns_own_up_to_it() -> None:
    figure = heat_map(heat_of([[1.0, 2.0]], width=10), View(x="iteration"))
    assert figure["layout"]["meta"]["sampling"] == "highest of every 10 iterations"


@pytest.mark.django_db
def test_merging_keeps_the_spike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend.queries.heat.MAX_CELLS", 40)
    job = factories.make_job()
    usual, spike = factories.Pace(shares=factories.EVEN), factories.Pace(shares=factories.EVEN, push_s=2.0)
    factories.make_reports(job, [usual] * 95 + [spike] + [usual] * 4)
    list(fold(job.pk))
    found = heat(job, View(metric="communication"))
    assert (found.width, found.values.shape) == (10, (4, 10))
    assert found.values[0].tolist()[:9] == pytest.approx([0.007] * 9)
    assert found.values[0, 9] > 2.0


@pytest.mark.django_db
def test_rows_of_one_machine_are_grouped() -> None:
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents(2, slots=2))
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 3)
    assert heat(job, View()).labels == ("w0 machine-0", "w2 machine-0", "w1 machine-1", "w3 machine-1")


@pytest.mark.django_db
def test_rows_of_one_kind_of_machine_are_grouped() -> None:
    job = factories.make_job()
    agents = factories.make_agents(4)
    for agent, kind in zip(agents, ("new", "old", "new", "old"), strict=True):
        Agent.objects.filter(pk=agent.pk).update(labels={"class": kind})
    factories.make_processes(job, agents)
    factories.make_reports(job, [factories.Pace(shares=factories.EVEN)] * 3)
    found = heat(job, View())
    assert (found.classes, found.ranks) == (("new", "new", "old", "old"), (0, 2, 1, 3))
    Agent.objects.update(labels={})
    Process.objects.update(emulate=None)
    assert heat(job, View()).classes == ()  # all have four cores: there is nothing to distinguish


@pytest.mark.django_db
def test_machines_without_a_label_go_by_what_they_are_made_to_be() -> None:
    job = factories.make_job()
    factories.make_processes(job, factories.make_agents(4))
    Agent.objects.update(labels={})
    assert machine_classes(job) == {
        0: "1,000 samples/s",
        1: "1,000 samples/s",
        2: "500 samples/s",
        3: "250 samples/s",
    }


@pytest.mark.django_db
def test_simulated_workers_go_by_the_machines_of_their_scenario() -> None:
    user = User.objects.create_user("ada")
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=3, user=user)
    simulation_run(row.pk)
    run = row.runs.get()
    assert len(machine_classes(run)) == 4
    kinds = heat(run, View()).classes
    assert len(kinds) == 4
    assert [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]] == list(dict.fromkeys(kinds))
