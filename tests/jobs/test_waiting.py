"""Why a job does not start: named, with who is in its way, and what would help."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.jobs.blockers import Waiting
from controlplane.jobs.models import Job
from controlplane.jobs.services import job_submit
from controlplane.jobs.waiting import waiting_of
from tests.support.rows import online_agent, reserve, submitted_job


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada")


def waiting(job: Job) -> Waiting:
    return waiting_of([job], timezone.now())[job.pk]


def why(job: Job) -> str:
    return waiting(job).sentence


def runs(ada: User, *, workers: int, servers: int, **spec: Any) -> Job:
    """A job that holds so many slots."""
    job = submitted_job(ada, **spec)
    Job.objects.filter(pk=job.pk).update(state="running")
    assert reserve(job.pk, {}, workers=workers, servers=servers)
    return job


def test_no_machine_is_online(ada: User) -> None:
    assert why(submitted_job(ada)) == (
        "cannot be scheduled: needs 2 worker slots and 1 server slot, and no machine is online: add one "
        "with python -m workers join"
    )


SCRIPT: dict[str, Any] = {
    "name": "mine",
    "launch": "attached",
    "command": ["python", "train.py"],
    "workers": 2,
}


def submitted_script(ada: User, **changes: Any) -> Job:
    return job_submit(document=SCRIPT | changes, user=ada).job


def test_no_machine_runs_scripts(ada: User) -> None:
    job = submitted_script(ada)
    assert why(job) == (
        "cannot be scheduled: needs 2 worker slots, and no machine is online: add one with python -m workers join "
        "--allow-scripts DIR"
    )
    online_agent("m1")
    assert why(job) == (
        "cannot be scheduled: needs 2 worker slots, and the only machine online (m1) runs no scripts: start its agent "
        "with --allow-scripts DIR, or submit it with other labels"
    )
    online_agent("m2")
    assert "and none of the 2 machines online (m1, m2) runs scripts: start its agent with" in why(job)


def test_no_machine_with_the_label_runs_scripts(ada: User) -> None:
    online_agent("m1", labels={"gpu": "a100"})
    online_agent("m2", scripts=True)
    assert "and the only machine with these labels (m1) runs no scripts" in why(
        submitted_script(ada, labels={"gpu": "a100"})
    )


def test_too_few_slots_run_scripts(ada: User) -> None:
    online_agent("m1", slots=8)
    online_agent("m2", slots=1, scripts=True)
    assert why(submitted_script(ada)) == (
        "cannot be scheduled: needs 2 worker slots, and the machine online that runs scripts offers 1 worker slot in "
        "all: 1 worker slot is missing; have another machine join with --slots 1 --allow-scripts DIR, or submit it "
        "with fewer"
    )


def test_a_script_is_about_to_start_where_a_machine_runs_scripts(ada: User) -> None:
    online_agent("m1", scripts=True)
    assert why(submitted_script(ada)) == "needs 2 worker slots, which are free: it is about to start"


def test_no_machine_has_the_label(ada: User) -> None:
    online_agent("m1", labels={"gpu": "t4"})
    assert why(submitted_job(ada, labels={"gpu": "a100"})) == (
        "cannot be scheduled: needs 2 worker slots and 1 server slot on machines labelled gpu=a100, and the "
        "only machine online has no gpu=a100 (there is gpu=t4): add one with a token from: python manage.py "
        "enroll --label gpu=a100, or submit it with other labels"
    )


def test_no_machine_has_all_of_the_labels(ada: User) -> None:
    online_agent("m1", labels={"gpu": "a100"})
    online_agent("m2", labels={"zone": "b"})
    said = why(submitted_job(ada, labels={"gpu": "a100", "zone": "b"}))
    assert "none of the 2 online has gpu=a100 and zone=b together: add one with a token from: " in said
    assert "enroll --label gpu=a100 --label zone=b, or" in said


def test_the_machines_are_too_small_even_when_idle(ada: User) -> None:
    online_agent("m1", slots=1)
    assert why(submitted_job(ada)) == (
        "cannot be scheduled: needs 2 worker slots and 1 server slot, and the machine online offers 1 worker "
        "slot and 1 server slot in all: 1 worker slot is missing; have another machine join with --slots 1, or submit "
        "it with fewer"
    )


def test_a_job_that_holds_the_slots_is_named(ada: User) -> None:
    online_agent("m1", slots=3, server_slots=2)
    other = runs(ada, workers=2, servers=1, name="other")
    found = waiting(submitted_job(ada))
    assert found.sentence == (
        f"needs 2 worker slots and 1 server slot, of which 1 and 1 are free; job {other.pk} (other) holds 2 worker "
        "slots and 1 server slot"
    )
    assert [(piece.text, piece.job) for piece in found.pieces if piece.job] == [(f"job {other.pk} (other)", other.pk)]
    assert [(each.job, each.relation, each.workers) for each in found.blockers] == [(other.pk, "holds", 2)]


def test_many_that_hold_slots_are_counted(ada: User) -> None:
    online_agent("m1", slots=6, server_slots=6)
    others = [runs(ada, workers=1, servers=0) for _ in range(5)]
    said = why(submitted_job(ada, workers=4))
    assert all(f"job {other.pk} (digits) holds 1 worker slot" in said for other in others[:3])
    assert said.endswith(", and 2 other jobs the rest")


def test_the_job_ahead_is_named_with_what_it_waits_for(ada: User) -> None:
    online_agent("m1", slots=4, server_slots=2)
    other = runs(ada, workers=2, servers=1)
    large = submitted_job(ada, workers=4, name="large")
    submitted = timezone.now() - timedelta(minutes=6)
    Job.objects.filter(pk=large.pk).update(created_at=submitted)
    assert why(large) == (
        f"needs 4 worker slots and 1 server slot, of which 2 and 1 are free; job {other.pk} (digits) holds 2 worker "
        "slots and 1 server slot; free slots are reserved for it, since it has waited for more than 5 minutes"
    )
    found = waiting(submitted_job(ada))
    assert found.sentence.endswith(
        f"; 1 job ahead of it: job {large.pk} (large), which was submitted at {submitted:%H:%M} UTC and waits for 4 "
        "worker slots and 1 server slot, so free slots are reserved for it"
    )
    assert [each.relation for each in found.blockers] == ["ahead"]


def test_a_job_that_would_fit_names_who_is_ahead_and_not_who_holds_other_slots(ada: User) -> None:
    online_agent("m1", slots=6, server_slots=6)
    runs(ada, workers=2, servers=1)
    Job.objects.filter(pk=submitted_job(ada, workers=5).pk).update(created_at=timezone.now() - timedelta(minutes=6))
    assert [each.relation for each in waiting(submitted_job(ada)).blockers] == ["ahead"]


def test_a_job_of_higher_priority_is_ahead_though_it_came_later(ada: User) -> None:
    online_agent("m1")
    job = submitted_job(ada)
    urgent = submitted_job(ada, priority=5)
    assert why(job).endswith(f"; 1 job ahead of it: job {urgent.pk} (digits) of priority 5, which is about to start")
    assert waiting(urgent).ahead == ()


def test_a_job_that_can_never_start_is_ahead_of_no_one(ada: User) -> None:
    online_agent("m1")
    never = submitted_job(ada, workers=50)
    job = submitted_job(ada)
    assert why(job) == "needs 2 worker slots and 1 server slot, which are free: it is about to start"
    assert waiting(never).outcome == "never"


def test_an_elastic_job_reports_what_is_enough(ada: User) -> None:
    online_agent("m1", slots=1)
    assert "needs 2 to 4 worker slots and 1 server slot" in why(
        submitted_job(ada, workers=4, elastic={"minimum_workers": 2})
    )


def test_a_job_that_has_its_slots_and_has_not_begun_is_about_to(ada: User) -> None:
    online_agent("m1")
    job = submitted_job(ada)
    reserve(job.pk, {}, workers=2, servers=1)
    assert why(job) == "needs 2 worker slots and 1 server slot, which are free: it is about to start"


def test_a_job_that_has_begun_does_not_wait(ada: User) -> None:
    job = submitted_job(ada)
    Job.objects.update(state="running")
    job.refresh_from_db()
    assert waiting_of([job], timezone.now()) == {}


def test_the_queue_is_read_once_for_a_whole_list(ada: User, django_assert_max_num_queries: Any) -> None:
    online_agent("m1", slots=1)
    jobs = [submitted_job(ada) for _ in range(30)]
    with django_assert_max_num_queries(7):
        assert len(waiting_of(jobs, timezone.now())) == 30
