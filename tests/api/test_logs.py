"""What processes wrote, over REST and on the job's page."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from controlplane.jobs.models import Job
from controlplane.telemetry.models import LogLine, LogTally
from tests.api.conftest import refused
from tests.support.rows import submitted_job

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    job = submitted_job(User.objects.create_superuser("ada"))
    lines = [
        ("worker", 0, "info", "connected to the control plane"),
        ("worker", 0, "output", "epoch 1, loss 0.5"),
        ("worker", 1, "error", "ValueError: <no such data set>"),
        ("server", 1, "warning", "a peer went away"),
        ("worker", 0, "debug", "gradient of 650 parameters"),
    ]
    LogLine.objects.bulk_create(
        LogLine(
            job=job,
            role=role,
            index=index,
            instance=f"{role[0]}{index}.0.1",
            at=NOON + timedelta(seconds=second),
            level=level,
            text=text,
        )
        for second, (role, index, level, text) in enumerate(lines)
    )
    return job


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["w0 debug", "s1 warning", "w1 error", "w0 output", "w0 info"]),
        ("level=output", ["s1 warning", "w1 error", "w0 output", "w0 info"]),
        ("level=warning", ["s1 warning", "w1 error"]),
        ("process=w0&level=info", ["w0 info"]),
        ("process=s1", ["s1 warning"]),
        ("text=LOSS", ["w0 output"]),
        ("since=2026-03-02T12:00:03Z", ["w0 debug", "s1 warning"]),
        ("page_size=2&page=2", ["w1 error", "w0 output"]),
    ],
)
def test_lines_are_chosen_by_level_process_text_and_time(
    viewer: APIClient, job: Job, query: str, found: list[str]
) -> None:
    body = viewer.get(f"/api/v1/jobs/{job.pk}/logs?{query}").json()
    assert [f"{line['process']} {line['level']}" for line in body["results"]] == found


@pytest.mark.parametrize(("query", "field"), [("level=loud", "level"), ("process=x9", "process"), ("since=x", "since")])
def test_a_bad_choice_is_named(viewer: APIClient, job: Job, query: str, field: str) -> None:
    body = refused(viewer.get(f"/api/v1/jobs/{job.pk}/logs?{query}"))
    assert (body["status"], field in str(body)) == (400, True)


def test_lines_can_be_had_as_a_file(viewer: APIClient, job: Job) -> None:
    reply = viewer.get(f"/api/v1/jobs/{job.pk}/logs/text?level=info")
    assert reply["Content-Disposition"] == f'attachment; filename="job-{job.pk}.log"'
    assert b"".join(reply.streaming_content).decode().splitlines() == [  # type: ignore[attr-defined]
        "2026-03-02T12:00:00+00:00 w0 info connected to the control plane",
        "2026-03-02T12:00:02+00:00 w1 error ValueError: <no such data set>",
        "2026-03-02T12:00:03+00:00 s1 warning a peer went away",
    ]


def test_the_page_shows_the_last_lines_and_refreshes_them_without_the_form(client: Client, job: Job) -> None:
    client.force_login(User.objects.get(username="ada"))
    page = client.get(f"/jobs/{job.pk}/?tab=logs&level=warning").content.decode()
    live = client.get(f"/jobs/{job.pk}/live/?tab=logs&level=warning").content.decode()
    for body in (page, live):
        assert "ValueError: &lt;no such data set&gt;" in body
        assert body.index("no such data set") < body.index("a peer went away")
        assert "epoch 1" not in body
    assert ('class="log-filter"' in page, 'class="log-filter"' in live) == (True, False)
    assert f'/api/v1/jobs/{job.pk}/logs/text?level=warning"' in page


def test_the_page_names_a_choice_that_cannot_be(client: Client, job: Job) -> None:
    client.force_login(User.objects.get(username="ada"))
    reply = client.get(f"/jobs/{job.pk}/?tab=logs&level=loud")
    assert (reply.status_code, b"level: found" in reply.content) == (400, True)


def test_dropped_lines_are_said_over_rest_in_the_file_and_on_the_page(viewer: APIClient, job: Job) -> None:
    assert viewer.get(f"/api/v1/jobs/{job.pk}/logs").json()["dropped"] == 0
    LogTally.objects.create(job=job, lines=1_239, dropped=1_234)
    assert viewer.get(f"/api/v1/jobs/{job.pk}/logs").json()["dropped"] == 1_234
    file = b"".join(viewer.get(f"/api/v1/jobs/{job.pk}/logs/text")).decode()
    assert file.splitlines()[0] == "1234 older lines were dropped"
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    assert "The oldest 1,234 lines were dropped." in browser.get(f"/jobs/{job.pk}/?tab=logs").content.decode()
