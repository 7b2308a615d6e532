"""A target that a reader types: where it stands, when it was reached, and what is no target."""

import json
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from frontend.build import build_figure
from frontend.figures.convergence import convergence
from frontend.figures.rows import View
from frontend.parameters import QueryError
from tests.frontend import factories
from tests.frontend.rows import learning


def test_a_typed_target_takes_the_place_of_the_jobs() -> None:
    figure = convergence(learning(), View(x="time", accuracy=0.5))["layout"]
    assert [note["text"] for note in figure["annotations"]] == ["target 50.0%"]
    assert [(shape["y0"], shape["y1"]) for shape in figure["shapes"]] == [(0.5, 0.5), (0, 0.5)]
    when = "0.8 s, 3 iterations, 384 samples, 1.5 epochs"
    assert f"The target of 50.0% was reached after {when}." in figure["meta"]["caption"]


def test_a_loss_is_looked_for_where_the_held_out_split_was_scored() -> None:
    figure = convergence(learning(), View(x="iteration", loss=1.0))["layout"]
    assert "A validation loss of 1 was reached after 0.8 s, 3 iterations" in figure["meta"]["caption"]
    rule, foot = figure["shapes"][-2:]
    assert (rule["yref"], rule["y0"], foot["yref"], foot["x0"]) == ("y", 1.0, "y domain", 3.0)


def test_without_scores_it_is_looked_for_in_training() -> None:
    unscored = replace(learning(), scored_loss=np.full(2, np.nan), scored_accuracy=np.full(2, np.nan))
    caption = convergence(unscored, View(x="time", loss=1.6))["layout"]["meta"]["caption"]
    assert "A training loss of 1.6 was reached after 0.5 s, 1 iterations, 256 samples, 1 epochs." in caption


def test_what_was_not_reached_is_reported_and_drawn_without_a_foot() -> None:
    figure = convergence(learning(), View(x="time", accuracy=0.99, loss=0.01))["layout"]
    said = "The target of 99.0% has not been reached. A validation loss of 0.01 has not been reached."
    assert said in figure["meta"]["caption"]
    assert len(figure["shapes"]) == 2


def test_on_a_logarithmic_axis_the_label_is_at_its_line() -> None:
    figure = convergence(learning(), View(x="time", loss=0.1, scale="log"))
    assert (figure["layout"]["annotations"][-1]["y"], figure["layout"]["shapes"][-1]["y0"]) == (-1.0, 0.1)
    go.Figure(json.loads(json.dumps(figure)))


@given(st.floats(0.001, 2.3), st.integers(3, 400))
def test_before_the_first_entry_at_the_target_all_are_above(target: float, points: int) -> None:
    rows = learning(points)
    for values, aim, place in (
        (rows.scored_loss, target, rows.first_loss(target)),
        (-rows.scored_accuracy, -target, rows.first_score(target)),
    ):
        assert np.all(values[:place] > aim)
        assert place is None or values[place] <= aim


@pytest.mark.django_db
@pytest.mark.parametrize(("query", "said"), [({"accuracy": "90%"}, "90.0%"), ({"accuracy": "0.8"}, "80.0%")])
def test_parts_may_be_typed_as_per_cent(query: dict[str, str], said: str) -> None:
    caption = json.loads(build_figure("convergence", factories.demo_job(), query))["layout"]["meta"]["caption"]
    assert f"The target of {said}" in caption


@pytest.mark.django_db
@pytest.mark.parametrize(
    "query", [{"accuracy": "95"}, {"accuracy": "nan"}, {"loss": "-1"}, {"loss": "low"}, {"accuracy": "0"}]
)
def test_what_is_no_target_is_refused_with_an_example(query: dict[str, str]) -> None:
    with pytest.raises(QueryError, match="such as 0"):
        build_figure("convergence", factories.demo_job(), query)


@pytest.mark.django_db
def test_the_box_is_on_the_page(viewer: Client) -> None:
    body = viewer.get(f"/jobs/{factories.demo_job().pk}/").content.decode()
    assert "entries=" in body
    assert "Target accuracy" in body
