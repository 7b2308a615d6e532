"""Jobs side by side: results against a baseline, what differs, and what is refused."""

import json

import plotly.graph_objects as go
import pytest
from django.test import Client

from controlplane.jobs.models import Job
from frontend import formats
from frontend.build import build_comparison, compared_jobs, comparison_etag
from frontend.figures import COMPARISONS
from frontend.figures.comparison import compared_learning, compared_lengths
from frontend.figures.points import plain
from frontend.figures.rows import View
from frontend.parameters import QueryError
from frontend.queries.comparison import common_target, compared, differences, lengths, results
from tests.frontend import factories
from tests.frontend.test_pages import text_of
from tests.frontend.test_verbatim import texts

pytestmark = pytest.mark.django_db


@pytest.fixture
def pair() -> list[Job]:
    """The same work under even and under balanced shares."""
    even = factories.make_job(name="even", spec=factories.spec(policy="uniform"))
    factories.make_reports(even, [factories.Pace(shares=factories.EVEN)] * 40)
    factories.make_scores(even, every=10, until=40, seconds=0.26)
    balanced = factories.make_job(name="balanced")
    factories.make_reports(balanced, [factories.Pace(shares=factories.BALANCED)] * 40)
    factories.make_scores(balanced, every=10, until=40, seconds=0.1)
    return [even, balanced]


def test_results_are_compared_with_the_baseline_and_the_best_is_marked(pair: list[Job]) -> None:
    rows = {row.title: row.cells for row in results(pair, compared(pair, View()), pair[0].pk, target=0.7)}
    mean = rows["Iteration time, mean"]
    assert [(cell.text, cell.delta, cell.best) for cell in mean] == [
        ("264 ms", "baseline", False),
        ("102 ms", "\u221261%", True),
    ]
    reached = rows["Time to 70.0% accuracy"]
    assert [(cell.text, cell.best) for cell in reached] == [("5.2 s", False), ("2 s", True)]
    assert [cell.best for cell in rows["Iterations to 70.0%"]] == [False, False]


def test_a_target_that_no_one_reached_is_no_result(pair: list[Job]) -> None:
    rows = {row.title: row.cells for row in results(pair, compared(pair, View()), pair[0].pk, target=0.999)}
    assert {cell.text for cell in rows["Time to 99.9% accuracy"]} == {"\N{EN DASH}"}


def test_times_are_compared_where_all_arrived(pair: list[Job]) -> None:
    assert common_target(compared(pair, View())) == pytest.approx(1 - 0.9 / 7)
    bare = factories.make_job()
    assert common_target(compared([*pair, bare], View())) is None


def test_warm_up_is_no_part_of_lengths(pair: list[Job]) -> None:
    assert len(lengths(pair[0])) == 38


def test_only_fields_that_differ_are_listed(pair: list[Job]) -> None:
    assert [(row.field, row.values) for row in differences(pair)] == [
        ("synchronization.batching.name", ("uniform", "lb-bsp-cpu"))
    ]


def test_a_faster_job_is_drawn_further_left(pair: list[Job]) -> None:
    slow, fast = compared_lengths(compared(pair, View()), View())["data"]
    *fast_ms, fast_end = plain(fast["x"])
    *slow_ms, slow_end = plain(slow["x"])
    assert max(fast_ms) < min(slow_ms) <= max(slow_ms) < fast_end == slow_end
    assert (plain(slow["y"])[0], plain(slow["y"])[-1]) == (0.0, 1.0)


def test_a_job_is_named_once_in_the_legend(pair: list[Job]) -> None:
    traces = compared_learning(compared(pair, View()), View(x="time"))["data"]
    assert [trace["name"] for trace in traces if trace["showlegend"]] == [f"#{job.pk} {job.name}" for job in pair]


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_are_plotly_json_and_empty_ones_report_it(pair: list[Job], name: str) -> None:
    jobs = ",".join(str(job.pk) for job in pair)
    assert len(go.Figure(json.loads(build_comparison(name, {"jobs": jobs, "theme": "dark"}))).data) > 1
    none = ",".join(str(factories.make_job().pk) for _ in range(2))
    assert json.loads(build_comparison(name, {"jobs": none}))["layout"]["meta"]["empty"].endswith(".")


def test_a_comparison_is_drawn_anew_when_one_of_its_jobs_moves(pair: list[Job]) -> None:
    query = {"jobs": ",".join(str(job.pk) for job in pair)}
    before = comparison_etag("learning", query)
    assert comparison_etag("learning", query) == before
    factories.make_reports(pair[1], [factories.Pace(shares=factories.BALANCED)], first=40)
    assert comparison_etag("learning", query) != before


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ("7", "jobs: found '7', expected 2 to 6 job IDs separated by commas, such as 3,5"),
        ("1,2,3,4,5,6,7", "expected 2 to 6 job IDs"),
        ("1,x", "expected 2 to 6 job IDs"),
        ("7,07", "jobs: found '7,07', expected 2 to 6 job IDs"),
        ("998,999", "jobs: found '998, 999', expected existing jobs"),
    ],
)
def test_what_cannot_be_compared_is_refused(jobs: str, said: str) -> None:
    with pytest.raises(QueryError, match=r"^jobs: ") as refused:
        compared_jobs(jobs)
    assert said in str(refused.value)


def test_a_field_that_is_empty_in_one_job_is_not_listed_beside_its_parts(pair: list[Job]) -> None:
    before = {row.field for row in differences(pair)}
    pair[0].spec["labels"], pair[1].spec["labels"] = {}, {"gpu": "a100"}
    rows = {row.field: row.values for row in differences(pair)}
    assert rows.keys() - before == {"labels.gpu"}
    assert rows["labels.gpu"] == (formats.NONE, "a100")


def test_the_page_reports_who_won_and_where_they_differ(viewer: Client, pair: list[Job]) -> None:
    page = text_of(viewer, f"/compare/?jobs={pair[0].pk}&jobs={pair[1].pk}&target=70")
    assert "Time to 70.0% accuracy 5.2 s" in page
    assert "synchronization.batching.name uniform lb-bsp-cpu" in page
    assert "Choose 2 to 6 jobs" in text_of(viewer, "/compare/")
    assert text_of(viewer, f"/compare/?jobs={pair[0].pk},{pair[1].pk}&target=120", 400).startswith(
        "target: found '120'"
    )
    assert text_of(viewer, f"/compare/?jobs={pair[0].pk},{pair[1].pk}&baseline=1x", 400).startswith("baseline: ")


def test_a_job_s_name_is_no_link_in_a_comparison(pair: list[Job]) -> None:
    for job in pair:
        Job.objects.filter(pk=job.pk).update(name='<a href="https://x.example">here</a>')
    query = {"jobs": ",".join(str(job.pk) for job in pair)}
    for name in COMPARISONS:
        found = [text for _, text in texts(json.loads(build_comparison(name, query))) if "x.example" in text]
        assert found
        assert not [text for text in found if "<a " in text]
