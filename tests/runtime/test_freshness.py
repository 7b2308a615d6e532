"""How old the data of each job is: by what waits to be copied, whoever is connected to whom."""

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import Job
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log, names
from controlplane.runtime.freshness import LATE_S, behind, copying, note_copier
from controlplane.runtime.ingest_health import history
from controlplane.runtime.redis import Client
from tests.runtime.support import SPEC, report, submit
from tests.runtime.test_ingest import copy_all

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job(client: Client, enqueued: list[int]) -> int:
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, row.pk)
    return row.pk


def say_late(client: Client, job: int, ago_s: float) -> None:
    """An entry as it would be had it been appended so long ago."""
    at_ms = int(client.time()[0] * 1000 - ago_s * 1000)
    client.delete(names.events(job))
    client.xadd(names.events(job), {"e": log.encode_event(report(2))}, id=f"{at_ms}-0")


def test_data_are_as_old_as_what_waits_longest(client: Client, job: int) -> None:
    copy_all(client)
    assert not copying(client)[job].late
    assert copying(client)[job].waits_s == 0.0
    log.append_event(job, report(2), client=client)
    assert 0.0 <= copying(client)[job].waits_s < LATE_S, "just said: it will be copied"
    assert behind(client, copying(client)) == ""
    copy_all(client)
    data_at = copying(client)[job].data_at
    assert data_at is not None
    assert str(int(data_at.timestamp() * 1000)) in client.xrevrange(names.events(job), count=1)[0][0].decode()


def test_a_job_that_sends_nothing_is_not_behind(client: Client, job: int) -> None:
    say_late(client, job, 3_600)
    copy_all(client)
    assert not copying(client)[job].late
    assert history(client).sentence == ""


def test_history_that_stalls_is_reported_with_its_age_and_the_process_to_look_at(client: Client, job: int) -> None:
    note_copier(client, "box:4711")
    say_late(client, job, 52)
    assert copying(client)[job].late
    told = history(client).sentence
    assert "behind" in told
    assert f"show job {job} as of" in told
    assert "process 4711 on box was the last to copy" in told
    assert "kill -9 4711" in told
    client.set(names.INGEST_LEASE, "held")
    assert "(process box:4711) is slower than the jobs' reports" in history(client).sentence
    copy_all(client)
    assert history(client).sentence == ""
