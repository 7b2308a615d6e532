"""A Redis that forgot everything: its live jobs end and give their slots back, and those that waited begin anew."""

from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.core.commands import MoveJob, RaiseFlag
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.protocol.spec import spec_document
from controlplane.runtime import names, scheduler, tasks
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.engines import RealEngines
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.losses import LOST, settle_lost_jobs
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import RawEvent
from tests.runtime.support import SPEC, Driver, submit
from tests.runtime.test_ingest import command, ready

pytestmark = pytest.mark.django_db(transaction=True)

AT = "1700000000000-0"


@pytest.fixture
def driver(client: Client, enqueued: list[int]) -> Driver:
    return Driver(client=client, kind=RealEngines(), enqueued=enqueued)


@pytest.fixture
def job(client: Client, enqueued: list[int]) -> int:
    user = User.objects.create(username="ann")
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user)
    submit(client, row.pk)
    return row.pk


@pytest.fixture
def running(client: Client, job: int) -> int:
    """A job that runs with two workers and a finding."""
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    for rank in (0, 1):
        Reservation.objects.create(agent_id=agent, role="worker", slot=rank, job_id=job, index=rank)
    found: dict[str, Any] = {"flag": "f1", "rank": 0, "kind": "compute", "persistence": "lasting", "evidence": {}}
    moved = MoveJob(cause=AT, reason="all are ready", state=JobState.RUNNING, awaited="")
    command(client, job, ready(job, agent, 0), ready(job, agent, 1), moved, RaiseFlag(cause=AT, reason="slow", **found))
    copy_all(client)
    return job


def copy_all(client: Client) -> None:
    ingest = Ingest(client, Event(), wait_s=0.001)
    while ingest.step():
        pass


def test_a_live_job_whose_log_was_lost_ends_and_gives_its_slots_back(client: Client, running: int) -> None:
    client.flushall()
    heard = client.pubsub()
    heard.subscribe(names.PAGES, names.agent_moved(Agent.objects.get().pk))
    tasks.rescue()
    row = Job.objects.get(pk=running)
    assert (row.state, row.reason, row.awaited, row.finished_at is None) == (JobState.FAILED, LOST, "", False)
    processes = Process.objects.values_list("state", "reason", "ended_at")
    assert list(processes) == [(ProcessState.STOPPED, LOST, row.finished_at)] * 2
    assert list(Flag.objects.values_list("closing_reason", flat=True)) == [LOST]
    assert not Reservation.objects.exists()
    told = [message["channel"] for message in iter(lambda: heard.get_message(timeout=0.2), None)]
    heard.close()
    assert set(told[2:]) == {names.agent_moved(Agent.objects.get().pk).encode(), names.PAGES.encode()}
    assert settle_lost_jobs(client) == [], "once is enough"


def test_a_live_job_that_has_its_log_goes_on(client: Client, running: int) -> None:
    tasks.rescue()
    assert Job.objects.get(pk=running).state == JobState.RUNNING
    assert Reservation.objects.count() == 2


def test_a_job_that_only_waited_begins_anew_when_its_log_was_lost(client: Client, driver: Driver, job: int) -> None:
    coordinate(job, driver.around())
    copy_all(client)
    client.flushall()
    assert (settle_lost_jobs(client), scheduler.begin_logs()) == ([], [job])
    coordinate(job, driver.around())
    copy_all(client)
    assert list(RawEvent.objects.values_list("kind", flat=True)) == ["job-submitted"]
    assert list(Decision.objects.values_list("sequence", "kind")) == [(1, "move-job")]
    assert Job.objects.get(pk=job).state == JobState.SUBMITTED


def test_a_job_that_is_over_stays_as_it_ended(client: Client, running: int) -> None:
    Job.objects.update(state=JobState.SUCCEEDED, reason="100 iterations were done")
    client.flushall()
    assert settle_lost_jobs(client) == []
    assert list(Job.objects.values_list("state", "reason")) == [(JobState.SUCCEEDED, "100 iterations were done")]
