"""Notes and tags of jobs: on charts, in lists, in groups, and each in the audit."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.jobs.models import AuditEntry, Job
from frontend.build import build_figure, figure_etag
from frontend.figures.marks import MOST
from frontend.models import JobNote, JobTag
from frontend.queries.marks import marks
from tests.frontend import factories
from tests.frontend.test_pages import text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    return factories.demo_job()


def note(client: Client, job: Job, **fields: str) -> int:
    return client.post(f"/jobs/{job.pk}/notes/", fields).status_code


def test_a_note_is_on_the_page_and_on_every_chart_at_its_iteration(operator: Client, job: Job) -> None:
    before = figure_etag("batch-size", job, {})
    assert note(operator, job, text="cable replaced", iteration="10") == 302
    assert figure_etag("batch-size", job, {}) != before
    for x in ("iteration", "time"):
        marks = json.loads(build_figure("batch-size", job, {"x": x}))["data"][-1]
        assert (marks["uid"], marks["name"]) == ("marks", "Decisions and notes")
        at = marks["text"].index("Note by operator: cable replaced")
        assert marks["marker"]["symbol"][at] == "star"
    assert JobNote.objects.get().iteration == 10
    assert "cable replaced 10 operator" in text_of(operator, f"/jobs/{job.pk}/")
    assert AuditEntry.objects.get(action="note-add").detail["text"] == "cable replaced"


def test_a_note_without_an_iteration_is_about_now(operator: Client, job: Job) -> None:
    note(operator, job, text="looks fine")
    assert JobNote.objects.get().iteration == job.iteration


def test_a_note_on_a_job_that_is_over_is_at_its_end(operator: Client, job: Job) -> None:
    """At the time of writing, days later, it would stretch the axis of every chart."""
    end = factories.START + timedelta(minutes=5)
    Job.objects.filter(pk=job.pk).update(state="succeeded", finished_at=end)
    note(operator, job, text="looks fine")
    assert JobNote.objects.get().at == end


def test_charts_of_a_job_with_many_notes_have_the_latest(job: Job) -> None:
    JobNote.objects.bulk_create(
        JobNote(job=job, iteration=number, at=factories.START, actor="ada", text=f"note {number}")
        for number in range(MOST + 1)
    )
    words = [mark.words for mark in marks(job) if mark.is_note]
    assert (len(words), words[0]) == (MOST, f"Note by ada: note {MOST}")


@pytest.mark.parametrize(
    "fields", [{"text": ""}, {"text": "x" * 1001}, {"text": "x", "iteration": "-1"}, {"text": "\0"}]
)
def test_what_is_no_note_is_refused(operator: Client, job: Job, fields: dict[str, str]) -> None:
    assert note(operator, job, **fields) == 400
    assert not JobNote.objects.exists()


def test_only_its_author_or_an_admin_deletes_a_note(operator: Client, job: Job) -> None:
    other = JobNote.objects.create(job=job, iteration=1, at=factories.START, actor="ada", text="mine")
    path = f"/jobs/{job.pk}/notes/{other.pk}/delete/"
    assert operator.post(path).status_code == 403
    User.objects.filter(username="operator").update(is_superuser=True)
    assert operator.post(path).status_code == 302
    assert AuditEntry.objects.get(action="note-delete").detail["text"] == "mine"


def test_viewers_read_notes_and_write_none(viewer: Client, job: Job) -> None:
    assert note(viewer, job, text="x") == 403
    assert viewer.post(f"/jobs/{job.pk}/tags/", {"tags": "a"}).status_code == 403
    assert "note-form" not in viewer.get(f"/jobs/{job.pk}/").content.decode()


def test_tags_filter_the_list(operator: Client, job: Job) -> None:
    other = factories.make_job(name="other")
    assert operator.post(f"/jobs/{job.pk}/tags/", {"tags": " paper , baseline, paper"}).status_code == 302
    assert sorted(JobTag.objects.values_list("name", flat=True)) == ["baseline", "paper"]
    assert "other" not in text_of(operator, "/jobs/?tag=paper").partition("Started by")[2]
    assert f"digits #{job.pk} baseline paper" in text_of(operator, "/jobs/?tag=paper")
    assert "No job has the tag “none”." in text_of(operator, "/jobs/?tag=none")
    operator.post(f"/jobs/{job.pk}/tags/", {"tags": ""})
    assert not JobTag.objects.exists()
    assert operator.post(f"/jobs/{other.pk}/tags/", {"tags": "x" * 41}).status_code == 400
    assert operator.post(f"/jobs/{other.pk}/tags/", {"tags": ",".join(map(str, range(13)))}).status_code == 400


def test_runs_are_shown_with_the_parameters_that_differ(operator: Client, job: Job) -> None:
    other = factories.make_job(name="other", spec=factories.spec(batch_size=32, policy="uniform"))
    JobTag.objects.create(job=other, name="paper")
    page = text_of(operator, "/jobs/parameters/")
    assert "batch_size" in page
    assert "synchronization.batching.name" in page
    assert "workload.name" not in page
    grouped = text_of(operator, "/jobs/parameters/?group=tag")
    assert "no tag 1 run, best accuracy 91.2%, mean lost time 18.0%" in grouped
    assert "paper 1 run" in grouped
    for group in ("policy", "workload", "user"):
        assert operator.get(f"/jobs/parameters/?group={group}").status_code == 200
    assert "The newest 1 matching run," in text_of(operator, "/jobs/parameters/?tag=paper")
    assert "No matching runs." in text_of(operator, "/jobs/parameters/?q=nothing")
