"""Slots for jobs that wait: who gets them, and who is told of them."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from controlplane.core.events import JobSubmitted, SlotsAssigned, StopRequested
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job, Process
from controlplane.runtime import log, scheduler
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.redis import Client
from tests.runtime.support import SPEC, Driver
from tests.runtime.test_presence import events, new_agent, new_job

pytestmark = pytest.mark.django_db(transaction=True)


def asking(**changes: Any) -> int:
    """A job that asks for other slots than two workers and a server."""
    job = Job.objects.get(pk=new_job())
    job.spec |= changes
    job.save()
    return job.pk


def test_the_oldest_job_that_waits_gets_the_slots(client: Client, enqueued: list[int]) -> None:
    agent, first, second = new_agent(), new_job(), new_job()
    assert scheduler.begin_logs() == [first, second]
    assert scheduler.schedule_jobs() == [first]
    assert [type(event) for event in events(client, first)] == [JobSubmitted, SlotsAssigned]
    assert [type(event) for event in events(client, second)] == [JobSubmitted]
    taken = Reservation.objects.order_by("-role", "index").values_list("job_id", "agent", "role", "slot")
    assert list(taken) == [(first, agent, "worker", 0), (first, agent, "worker", 1), (first, agent, "server", 0)]


def test_slots_are_not_sent_again_at_once_to_a_job_whose_row_is_behind(client: Client, enqueued: list[int]) -> None:
    new_agent()
    job = new_job()
    scheduler.begin_logs()
    assert [scheduler.schedule_jobs() for _ in range(3)] == [[job], [], []]


def test_slots_for_a_job_that_was_stopped_meanwhile_are_given_back(
    client: Client, enqueued: list[int], driver: Driver
) -> None:
    new_agent()
    job = new_job()
    scheduler.begin_logs()
    log.append_event(job, StopRequested(actor="ann"), client=client)
    coordinate(job, driver.around())
    assert scheduler.schedule_jobs() == []
    assert not Reservation.objects.exists()


def test_a_job_that_can_never_start_blocks_no_one(client: Client, enqueued: list[int]) -> None:
    new_agent()
    asking(workers=8)
    asking(labels={"gpu": "a100"})
    fits = new_job()
    scheduler.begin_logs()
    assert scheduler.schedule_jobs() == [fits]


def test_a_job_that_does_not_fit_yet_lets_smaller_ones_go_first_until_it_has_waited_for_long(
    client: Client, enqueued: list[int]
) -> None:
    new_agent(slots=4, servers=4)
    large, small = asking(workers=4), asking(workers=1)
    runs = asking(workers=1)
    scheduler.begin_logs()
    Job.objects.filter(pk=large).update(state="cancelled")
    Job.objects.filter(pk=small).update(state="cancelled")
    assert scheduler.schedule_jobs() == [runs]
    Job.objects.filter(pk=large).update(state="submitted", created_at=timezone.now() - timedelta(minutes=6))
    Job.objects.filter(pk=small).update(state="submitted")
    assert scheduler.schedule_jobs() == []
    Job.objects.filter(pk=large).update(created_at=timezone.now())
    assert scheduler.schedule_jobs() == [small]


def test_what_is_left_of_a_deleted_machine_is_given_back_and_the_job_starts_elsewhere(
    client: Client, enqueued: list[int]
) -> None:
    gone, job = new_agent("m1"), new_job()
    stays = new_agent("m2", slots=2, servers=0)
    scheduler.begin_logs()
    Reservation.objects.create(agent_id=stays, role="worker", slot=0, job_id=job, index=0)
    assert scheduler.schedule_jobs() == [job]
    assert set(Reservation.objects.values_list("agent", flat=True)) == {gone}
    assert Agent.objects.count() == 2


def test_the_job_with_the_highest_priority_gets_the_slots(client: Client, enqueued: list[int]) -> None:
    new_agent()
    older, newer = new_job(), new_job(priority=1)
    scheduler.begin_logs()
    assert scheduler.schedule_jobs() == [newer]
    assert not Reservation.objects.filter(job_id=older).exists()


def test_several_processes_that_start_again_get_different_slots_and_the_others_cost_no_look(
    client: Client, enqueued: list[int], django_assert_max_num_queries: Any
) -> None:
    job, here = new_job(state="running"), new_agent("m1", slots=2, servers=0)
    away = new_agent("m2", slots=30, servers=1)
    Agent.objects.filter(pk=away).update(state="offline")
    log.start_log(job, SPEC, client=client)
    common = {
        "job_id": job,
        "role": "worker",
        "state": "lost",
        "state_since": timezone.now(),
        "started_at": timezone.now(),
    }
    for index in range(30):
        Reservation.objects.create(agent_id=away, role="worker", slot=index, job_id=job, index=index)
        Process.objects.create(index=index, instance=f"w{index}.0.1", agent_id=away, wants_slot=True, **common)
    with django_assert_max_num_queries(40):
        assert scheduler.replace_slots() == [job]
    *_, assigned = events(client, job)
    assert isinstance(assigned, SlotsAssigned)
    assert [(each.agent, each.slot, each.index) for each in assigned.assignments] == [(here, 0, 0), (here, 1, 1)]
    taken = Reservation.objects.filter(agent=here).order_by("slot").values_list("slot", "index")
    assert list(taken) == [(0, 0), (1, 1)]
    assert scheduler.replace_slots() == []
