"""Running jobs over REST: other policies, a pause, another predictor."""

from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import OperationalError
from rest_framework.test import APIClient

from controlplane.core.events import ChangeRequested, PauseRequested, PredictorPromoted, ResumeRequested
from controlplane.jobs.models import AuditEntry, Decision, Job
from controlplane.protocol.spec import Choice, parse_spec
from controlplane.runtime import names
from controlplane.runtime.log import decode_event, start_log
from tests.api.conftest import refused
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(redis_url: str) -> Job:
    """One that runs, as far as the rows know."""
    job = submitted_job(User.objects.create_user("ada"))
    start_log(job.pk, parse_spec(job.spec))
    Job.objects.update(state="running")
    return Job.objects.get()


def last_event(redis_url: str, job: Job) -> Any:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        return decode_event(client.xrange(names.events(job.pk))[-1][1][b"e"])


def patch(client: APIClient, job: Job, body: Any, etag: str | None = '"0"') -> Any:
    headers = {} if etag is None else {"If-Match": etag}
    return client.patch(f"/api/v1/jobs/{job.pk}/policy", body, format="json", headers=headers)


def took_effect(job: Job, **choices: Any) -> None:
    Decision.objects.create(
        job=job,
        incarnation=0,
        sequence=Decision.objects.count() + 1,
        at=datetime.now(UTC),
        kind="change-policies",
        cause="1-0",
        reason="",
        payload={"type": "change-policies", "choices": {q: {"name": c, "parameters": {}} for q, c in choices.items()}},
    )


def test_a_change_is_appended_audited_and_pending_until_its_generation(
    operator: APIClient, job: Job, redis_url: str
) -> None:
    before = operator.get(f"/api/v1/jobs/{job.pk}/policy")
    assert (before["ETag"], before.json()["barrier"], before.json()["pending"]) == ('"0"', {"name": "bsp"}, {})
    reply = patch(operator, job, {"barrier": {"name": "ssp", "staleness": 3}})
    assert (reply.status_code, reply["ETag"]) == (202, '"1"')
    assert reply.json()["pending"] == {"barrier": {"name": "ssp", "staleness": 3}}
    wish = {"barrier": Choice(name="ssp", parameters={"staleness": 3})}
    assert last_event(redis_url, job) == ChangeRequested(actor="operator", choices=wish)
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.action, entry.detail) == (
        "operator",
        "job-change",
        {"barrier": {"name": "ssp", "staleness": 3}},
    )
    Decision.objects.all().delete()
    took_effect(job, batching="uniform")
    now = operator.get(f"/api/v1/jobs/{job.pk}/policy").json()
    assert (now["batching"], now["pending"]) == ({"name": "uniform"}, {"barrier": {"name": "ssp", "staleness": 3}})
    alone = operator.get(f"/api/v1/jobs/{job.pk}").json()
    assert (alone["policies"]["batching"], alone["policies"]["barrier"]) == ("uniform", "bsp")


def test_what_holds_is_pending_no_longer(operator: APIClient, job: Job) -> None:
    patch(operator, job, {"barrier": "asp"})
    took_effect(job, barrier="asp")
    now = operator.get(f"/api/v1/jobs/{job.pk}/policy").json()
    assert (now["barrier"], now["pending"], now["changes"]) == ({"name": "asp"}, {}, 1)


def test_of_two_who_saw_the_same_only_one_changes_the_job(operator: APIClient, job: Job) -> None:
    assert patch(operator, job, {"barrier": "asp"}).status_code == 202
    second = patch(operator, job, {"barrier": "ssp"})
    assert (second.status_code, refused(second)["detail"]) == (
        412,
        f'job {job.pk} (digits) has changed since it was read: its policy is "1", If-Match was "0"; read it again',
    )
    assert patch(operator, job, {"barrier": "ssp"}, etag=None).status_code == 428


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({"barrier": "sometimes"}, 400, "synchronization.barrier.name: expected one of aggressive, asp, backup"),
        ({"barrier": {"name": "ssp", "staleness": -1}}, 400, "synchronization.barrier.staleness: expected"),
        ({"colour": "red"}, 400, "spec: expected a mapping with one or more of batching, barrier, placement, data"),
        ({"barrier": "backup", "data": "rotation"}, 422, "barrier backup drops the updates of late workers"),
        ({"barrier": "bsp"}, 409, "already runs with these policies"),
    ],
)
def test_a_change_that_has_no_place_is_refused_with_the_reason(
    operator: APIClient, job: Job, body: Any, status: int, why: str
) -> None:
    reply = patch(operator, job, body)
    assert (reply.status_code, why in refused(reply)["detail"]) == (status, True), refused(reply)
    assert not AuditEntry.objects.filter(action="job-change").exists()


def test_a_job_that_does_not_run_can_be_neither_changed_nor_paused_nor_resumed(operator: APIClient, job: Job) -> None:
    Job.objects.update(state="finishing")
    job.refresh_from_db()
    pause = operator.post(f"/api/v1/jobs/{job.pk}/actions/pause")
    resume = operator.post(f"/api/v1/jobs/{job.pk}/actions/resume")
    assert [r.status_code for r in (patch(operator, job, {"barrier": "asp"}), pause, resume)] == [409] * 3
    assert refused(pause)["detail"] == f"job {job.pk} (digits) is finishing: only one that is running can be paused"


def test_pause_and_resume_are_appended_with_the_actor(operator: APIClient, job: Job, redis_url: str) -> None:
    assert operator.post(f"/api/v1/jobs/{job.pk}/actions/pause").status_code == 202
    assert last_event(redis_url, job) == PauseRequested(actor="operator")
    assert operator.post(f"/api/v1/jobs/{job.pk}/actions/resume").status_code == 409
    Job.objects.update(state="paused")
    assert operator.post(f"/api/v1/jobs/{job.pk}/actions/resume").status_code == 202
    assert last_event(redis_url, job) == ResumeRequested(actor="operator")
    assert [e.action for e in AuditEntry.objects.order_by("id")][-2:] == ["job-pause", "job-resume"]


def test_a_predictor_that_runs_beside_can_be_promoted(operator: APIClient, job: Job, redis_url: str) -> None:
    batching = {"name": "lb-bsp-cpu", "predictor": "ema", "shadows": ["arima"]}
    chosen = job.spec["synchronization"] | {"batching": batching}
    Job.objects.update(spec=job.spec | {"synchronization": chosen})
    where = f"/api/v1/jobs/{job.pk}/actions/promote"
    assert operator.post(where, {"predictor": "arima"}, format="json").status_code == 202
    assert last_event(redis_url, job) == PredictorPromoted(predictor="arima", actor="operator")
    other = operator.post(where, {"predictor": "narx"}, format="json")
    assert (other.status_code, refused(other)["detail"]) == (
        422,
        "predictor: expected one of the running predictors: ema, arima",
    )


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_what_cannot_be_audited_is_not_requested(
    action: str, operator: APIClient, job: Job, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = last_event(redis_url, job)

    def locked(**_: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr("controlplane.jobs.services.audit", locked)
    assert operator.post(f"/api/v1/jobs/{job.pk}/actions/{action}").status_code == 503
    assert last_event(redis_url, job) == before


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_what_was_not_requested_is_not_audited(
    action: str, operator: APIClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> str:
        raise redis.ConnectionError("gone")

    monkeypatch.setattr("controlplane.api.steering.append_event", lost)
    monkeypatch.setattr("controlplane.api.actions.append_event", lost)
    before = AuditEntry.objects.count()
    assert operator.post(f"/api/v1/jobs/{job.pk}/actions/{action}").status_code == 503
    assert AuditEntry.objects.count() == before
