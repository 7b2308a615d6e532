"""Pages say how old what they show is: the notice, what the chip is made from, and numbers of then as such."""

import re

import pytest
from django.core.cache import cache
from django.test import Client as Browser

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.runtime import log, names
from controlplane.runtime.redis import Client, connect
from controlplane.telemetry.models import Cursor
from tests.frontend import factories
from tests.runtime.support import report

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(redis_url: str) -> Client:
    cache.clear()
    return connect()


@pytest.fixture
def job(client: Client, viewer: Browser) -> Job:
    """A running job, the end of whose log waits for 52 s."""
    job = factories.demo_job()
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    client.sadd(names.LIVE_JOBS, job.pk)
    at_ms = client.time()[0] * 1000 - 52_000
    Cursor.objects.update_or_create(job=job, stream="events", defaults={"position": f"{at_ms - 60_000}-0"})
    client.xadd(names.events(job.pk), {"e": log.encode_event(report(2))}, id=f"{at_ms}-0")
    client.set(names.INGEST_WHO, "box:4711")
    return job


def waits(html: str) -> float:
    found = re.search(r'data-waits="([\d.]+)" data-at="(.*?)"', html)
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("address", ["/", "/live/", "/jobs/{job}/", "/jobs/{job}/live/", "/freshness/?about={job}"])
def test_a_page_of_a_job_whose_history_stalls_reports_it(viewer: Browser, job: Job, address: str) -> None:
    html = viewer.get(address.format(job=job.pk)).content.decode()
    assert 52 <= waits(html) < 60
    assert f"pages show job {job.pk} as of" in html
    assert "kill -9 4711" in html


def test_numbers_of_then_are_shown_as_such_and_not_as_nothing(viewer: Browser, job: Job) -> None:
    for address in ("/", f"/jobs/{job.pk}/"):
        html = viewer.get(address).content.decode()
        assert re.search(r">\s*[1-9][\d.,]*<small> samples/s as of \d\d:\d\d:\d\d", html), address


def test_what_is_copied_is_fresh(viewer: Browser, job: Job, client: Client) -> None:
    (entry,) = client.xrange(names.events(job.pk))
    Cursor.objects.filter(job=job, stream="events").update(position=entry[0].decode())
    html = viewer.get(f"/jobs/{job.pk}/").content.decode()
    assert waits(html) == 0.0
    assert "as of" not in html


def test_other_jobs_pages_are_not_stale_for_it(viewer: Browser, job: Job) -> None:
    other = factories.make_job()
    assert waits(viewer.get(f"/jobs/{other.pk}/").content.decode()) == 0.0
