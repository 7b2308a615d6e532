"""Why a job does not start."""

import pytest
from django.contrib.auth.models import User

from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_waiting_reason
from tests.support.rows import online_agent, reserve, submitted_job


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def test_no_machine_is_online(ada: User) -> None:
    assert job_waiting_reason(submitted_job(ada)) == (
        "needs 2 worker slots and 1 server slot, and no machine is online: have one join with python -m workers join; "
        "0 jobs ahead of it in the queue"
    )


def test_no_machine_has_the_labels(ada: User) -> None:
    online_agent("m1", labels={"gpu": "t4"})
    assert job_waiting_reason(submitted_job(ada, labels={"gpu": "a100"})) == (
        "needs 2 worker slots and 1 server slot on machines labelled gpu=a100, which none of those online has "
        "(1 machine); 0 jobs ahead of it in the queue"
    )


def test_the_machines_are_too_small_even_when_idle(ada: User) -> None:
    online_agent("m1", slots=1)
    assert job_waiting_reason(submitted_job(ada)) == (
        "needs 2 worker slots and 1 server slot, and these machines offer 1 and 1 in all; "
        "0 jobs ahead of it in the queue"
    )


def test_slots_are_taken_and_others_wait_before_it(ada: User) -> None:
    online_agent("m1", slots=3, server_slots=2)
    reserve(99, {}, workers=2, servers=1)
    submitted_job(ada)
    assert job_waiting_reason(submitted_job(ada)) == (
        "needs 2 worker slots and 1 server slot, of which 1 and 1 are free; 1 job ahead of it in the queue"
    )


def test_nothing_is_in_the_way(ada: User) -> None:
    online_agent("m1")
    assert job_waiting_reason(submitted_job(ada)) == (
        "needs 2 worker slots and 1 server slot, which are free: it is about to start; 0 jobs ahead of it in the queue"
    )


def test_a_job_that_has_its_slots_does_not_wait(ada: User) -> None:
    job = submitted_job(ada)
    Job.objects.update(state="running")
    job.refresh_from_db()
    assert job_waiting_reason(job) == ""
