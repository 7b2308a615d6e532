"""Figures by name: what they cost, when they are drawn anew, and what is refused."""

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from controlplane.telemetry.models import Cursor
from frontend.build import READERS, UnknownFigure, build_figure, figure_etag
from frontend.figures import FIGURES
from frontend.parameters import QueryError
from tests.frontend import factories

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_real_rows_is_plotly_json(name: str) -> None:
    job = factories.played_job()
    figure = go.Figure(json.loads(build_figure(name, job, {"theme": "dark"})))
    assert figure.layout.meta["empty"] == ""
    assert figure.layout.meta["caption"].endswith(".")


@pytest.mark.parametrize("name", FIGURES)
def test_a_job_without_reports_has_a_sentence_instead(name: str) -> None:
    figure = json.loads(build_figure(name, factories.make_job(), {}))
    assert (figure["data"], figure["layout"]["meta"]["empty"][-1]) == ([], ".")


def test_every_figure_has_a_reader() -> None:
    assert {kind.rows for kind in FIGURES.values()} == set(READERS)


def test_all_viewers_share_one_drawing_of_each_tick(django_assert_num_queries: Any) -> None:
    job = factories.demo_job()
    first = build_figure("batch-size", job, {})
    with django_assert_num_queries(1):
        assert build_figure("batch-size", job, {"theme": "light", "x": "iteration"}) == first


def test_the_entity_tag_changes_with_the_data_and_with_the_view_and_with_nothing_else() -> None:
    job = factories.demo_job()
    before = figure_etag("batch-size", job, {})
    assert figure_etag("batch-size", job, {"x": "iteration", "unknown": "1"}) == before
    assert figure_etag("batch-size", job, {"x": "time"}) != before
    assert figure_etag("convergence", job, {}) != before
    Cursor.objects.filter(job=job).update(position="9-9")
    assert figure_etag("batch-size", job, {}) != before


def test_a_tag_costs_one_query(django_assert_num_queries: Any) -> None:
    job = factories.demo_job()
    with django_assert_num_queries(1):
        figure_etag("iteration-time", job, {})


def test_an_unknown_figure_is_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownFigure, match="'pie': no such figure; there are batch-size, block-map, convergence, "):
        figure_etag("pie", factories.make_job(), {})


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"theme": "neon"}, "theme: found 'neon', expected one of light, dark"),
        ({"x": "parsecs"}, "x: found 'parsecs', expected one of iteration, time, samples"),
        ({"ranks": "1,two"}, "ranks: found '1,two', expected at most 16 ranks separated by commas, such as 0,3"),
        ({"ranks": ",".join(map(str, range(17)))}, "ranks: found '0,1"),
    ],
)
def test_a_query_that_cannot_be_followed_is_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(QueryError) as refusal:
        build_figure("batch-size", factories.make_job(), query)
    assert str(refusal.value).startswith(message)
