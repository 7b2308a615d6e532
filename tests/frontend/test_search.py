"""Global search, saved views and pinned charts: each user's own, and only pages of this site."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from frontend.models import JobNote, JobTag, SavedView
from frontend.queries.saved_views import pins
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


def save(client: Client, **fields: str) -> int:
    return client.post("/views/", {"name": "mine", "address": "/jobs/?state=running"} | fields).status_code


def test_everything_is_found_by_a_few_letters(viewer: Client) -> None:
    job = factories.demo_job()
    JobTag.objects.create(job=job, name="paper")
    JobNote.objects.create(job=job, iteration=1, at=factories.START, actor="ada", text="the cable was replaced")
    for text, expected in (
        ("dig", f"job digits #{job.pk} running"),
        (f"#{job.pk}", f"job digits #{job.pk}"),
        ("paper", f"job digits #{job.pk}"),
        ("machine-3", "machine machine-3 online"),
        ("cable", "note the cable was replaced"),
        ("syst", "page System health"),
        ("stalen", "term staleness"),
        ("nothing at all", "Nothing matches “nothing at all”."),
        ("", "Your saved views appear here."),
    ):
        assert expected in text_of(viewer, f"/search/?q={text.replace('#', '%23')}"), text


def test_a_saved_view_is_found_by_its_user_alone(viewer: Client, operator: Client) -> None:
    assert save(viewer, name="my running jobs") == 200
    assert "saved view my running jobs" in text_of(viewer, "/search/?q=")
    assert "my running jobs" not in text_of(operator, "/search/?q=my running")
    row = SavedView.objects.get()
    assert operator.post(f"/views/{row.pk}/delete/").status_code == 404
    assert viewer.post(f"/views/{row.pk}/delete/").status_code == 204


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"address": "https://elsewhere.example/"},
        {"address": "//elsewhere.example/"},
        {"address": "//["},
        {"address": "/api/v1/jobs"},
        {"address": "/no/such/page/"},
        {"address": "/jobs/", "figure": "batch-size"},
        {"address": "/jobs/1/", "figure": "no-figure"},
        {"address": "/jobs/404/", "figure": "batch-size"},
        {"address": f"/jobs/{10**30}/", "figure": "batch-size"},
    ],
)
def test_what_is_no_page_of_this_site_is_refused(viewer: Client, fields: dict[str, str]) -> None:
    assert save(viewer, **fields) == 400
    assert not SavedView.objects.exists()


def test_at_most_four_charts_are_pinned_with_their_options(viewer: Client) -> None:
    job = factories.demo_job()
    address = f"/jobs/{job.pk}/?ranks=0,3&x-batch-size=time&x-iteration-time=samples&range=iteration:1,9"
    names = ("batch-size", "iteration-time", "convergence", "heat-map")
    assert [save(viewer, address=address, figure=name) for name in (*names, "staleness")] == [200, 200, 200, 200, 400]
    found = pins(User.objects.get(username="viewer"))
    assert [(pin.name, pin.fixed, pin.axis) for pin in found[:2]] == [
        ("batch-size", "ranks=0%2C3&x=time", "time"),
        ("iteration-time", "ranks=0%2C3&x=samples", "samples"),
    ]
    page = viewer.get("/").content.decode()
    assert page.count("<plotly-figure") == 4
    assert f'src="/api/v1/jobs/{job.pk}/figures/batch-size"' in page
    job.delete()
    assert "plotly" not in viewer.get("/").content.decode(), "an overview without pins does without the library"


def test_charts_of_deleted_jobs_take_no_place_of_others(viewer: Client) -> None:
    """The overview shows no pin of a job that is gone, so no one could remove it."""
    job = factories.demo_job()
    names = ("batch-size", "iteration-time", "convergence", "heat-map")
    assert {save(viewer, address=f"/jobs/{job.pk}/", figure=name) for name in names} == {200}
    job.delete()
    assert save(viewer, address=f"/jobs/{factories.make_job().pk}/", figure="batch-size") == 200
    assert SavedView.objects.count() == 1


def test_a_saved_view_is_deleted_where_it_is_found(viewer: Client) -> None:
    save(viewer, name="my running jobs")
    row = SavedView.objects.get()
    assert f'data-unpin="/views/{row.pk}/delete/"' in viewer.get("/search/?q=").content.decode()
    assert viewer.post(f"/views/{row.pk}/delete/").status_code == 204
    assert "data-unpin" not in viewer.get("/search/?q=").content.decode()


def test_the_job_of_a_number_comes_before_jobs_with_it_in_their_name(viewer: Client) -> None:
    job = factories.make_job(name="old")
    for _ in range(6):
        factories.make_job(name=f"run-{job.pk}")
    for text in (str(job.pk), f"%23{job.pk}"):
        found = text_of(viewer, f"/search/?q={text}")
        assert found.startswith(f"job old #{job.pk}")
        assert found.count("job run-") == 4
