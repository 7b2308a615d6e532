"""Workers, servers and flags over REST: what is asked reaches the log with its actor, and what came of it is told."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.core.events import DrainRequested, ExclusionRequested, InclusionRequested, ServerRequested
from controlplane.jobs import services
from controlplane.jobs.models import AuditEntry, Decision, Flag, FlagNote, Job, Process
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import names
from controlplane.runtime.log import decode_event, start_log
from tests.api.conftest import refused
from tests.support.rows import submitted_job

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)


@pytest.fixture
def job(redis_url: str) -> Job:
    """One that runs, as far as the rows know."""
    job = submitted_job(User.objects.create_user("ada"), workers=4, servers=2)
    start_log(job.pk, parse_spec(job.spec))
    Job.objects.update(state="running")
    for index in range(2):
        process(job, "server", index)
    return Job.objects.get()


def process(job: Job, role: str, index: int, **more: Any) -> Process:
    times = {"state_since": NOW, "started_at": NOW}
    fields = {"instance": f"{role[0]}{index}.0.1", "state": "ready"} | times | more
    return Process.objects.create(job=job, role=role, index=index, **fields)


def last_event(redis_url: str, job: Job) -> Any:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        return decode_event(client.xrange(names.events(job.pk))[-1][1][b"e"])


def decided(job: Job, kind: str, entry: str, reason: str, **payload: Any) -> None:
    number = Decision.objects.count() + 1
    fields = {"incarnation": 0, "sequence": number, "at": NOW, "payload": payload}
    Decision.objects.create(job=job, kind=kind, cause=entry, reason=reason, **fields)


def stages(client: APIClient, job: Job) -> list[tuple[str, str, str, str]]:
    rows = client.get(f"/api/v1/jobs/{job.pk}/requests").json()
    return [(row["action"], row["about"], row["stage"], row["reason"]) for row in rows]


@pytest.mark.parametrize(
    ("path", "event", "action", "about"),
    [
        ("workers/3/actions/exclude", ExclusionRequested(actor="operator", rank=3), "worker-exclude", "w3"),
        ("workers/3/actions/include", InclusionRequested(actor="operator", rank=3), "worker-include", "w3"),
        ("workers/3/actions/drain", DrainRequested(actor="operator", role="worker", index=3), "worker-drain", "w3"),
        ("servers/actions/add", ServerRequested(actor="operator"), "server-add", ""),
        ("servers/1/actions/drain", DrainRequested(actor="operator", role="server", index=1), "server-drain", "s1"),
    ],
)
def test_a_request_is_appended_audited_and_pending_until_it_is_answered(
    operator: APIClient, job: Job, redis_url: str, path: str, event: Any, action: str, about: str
) -> None:
    reply = operator.post(f"/api/v1/jobs/{job.pk}/{path}")
    assert (reply.status_code, reply.json()["stage"]) == (202, "pending")
    assert last_event(redis_url, job) == event
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.action, entry.job_id) == ("operator", action, job.pk)
    assert stages(operator, job) == [(action, about, "pending", "")]
    decided(job, "decline-request", entry.entry, "no: because")
    assert stages(operator, job) == [(action, about, "declined", "no: because")]


def test_concurrent_requests_each_get_their_own_answer(
    operator: APIClient, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def audit_before_another(**fields: Any) -> AuditEntry:
        mine = services.audit(**fields)
        services.audit(**(fields | {"actor": "ada", "entry": "9-9"}))
        return mine

    monkeypatch.setattr("controlplane.api.operating.services", SimpleNamespace(audit=audit_before_another))
    assert operator.post(f"/api/v1/jobs/{job.pk}/servers/actions/add").json()["actor"] == "operator"


def test_a_drain_is_under_way_until_the_process_has_gone(operator: APIClient, job: Job) -> None:
    life = process(job, "worker", 3)
    operator.post(f"/api/v1/jobs/{job.pk}/workers/3/actions/drain")
    sentence = "w3 was drained by operator: it leaves before iteration 57"
    decided(job, "leave-out", AuditEntry.objects.latest("id").entry, sentence)
    assert stages(operator, job) == [("worker-drain", "w3", "under way", sentence)]
    life.state = "stopped"
    life.save()
    assert stages(operator, job) == [("worker-drain", "w3", "done", sentence)]


def test_an_addition_is_under_way_until_the_server_is_here_or_there_is_no_slot(operator: APIClient, job: Job) -> None:
    for _ in range(2):
        operator.post(f"/api/v1/jobs/{job.pk}/servers/actions/add")
    second, first = AuditEntry.objects.order_by("-id").values_list("entry", flat=True)[:2]
    decided(job, "request-slot", first, "asked for", index=2)
    decided(job, "request-slot", second, "asked for", index=3)
    process(job, "server", 2)
    assert [stage for _, _, stage, _ in stages(operator, job)] == ["under way", "done"]


def test_a_change_is_under_way_until_its_generation_and_declined_ones_are_not_pending(
    operator: APIClient, job: Job
) -> None:
    where, etag = f"/api/v1/jobs/{job.pk}/policy", {"If-Match": "*"}
    operator.patch(where, {"barrier": "asp"}, format="json", headers=etag)
    entry = AuditEntry.objects.latest("id").entry
    decided(job, "move-job", entry, "after every worker has stopped")
    assert stages(operator, job)[0][2] == "under way"
    decided(job, "change-policies", "9-9", "every worker has stopped", choices={})
    assert stages(operator, job)[0][2] == "done"
    operator.patch(where, {"barrier": "ssp"}, format="json", headers=etag)
    assert operator.get(where).json()["pending"] == {"barrier": {"name": "ssp"}}
    decided(job, "decline-request", AuditEntry.objects.latest("id").entry, "it ends soon")
    assert operator.get(where).json()["pending"] == {}


@pytest.mark.parametrize(
    ("spec", "path", "status", "sentence"),
    [
        ({}, "workers/9/actions/exclude", 404, "has no worker w9: it has w0 to w3"),
        ({}, "servers/9/actions/drain", 404, "has no running server s9"),
        ({"elastic": {"minimum_workers": 4}}, "workers/0/actions/drain", 409, "needs at least 4 of its 4 workers"),
        (
            {"servers": 0, "communication": "all-reduce"},
            "servers/actions/add",
            409,
            "is an all-reduce job: it has no servers, workers hold the parameters",
        ),
    ],
)
def test_what_is_known_to_be_impossible_is_refused_at_once(
    operator: APIClient, redis_url: str, spec: dict[str, Any], path: str, status: int, sentence: str
) -> None:
    job = submitted_job(User.objects.create_user("ada"), **({"workers": 4} | spec))
    Job.objects.update(state="running")
    reply = operator.post(f"/api/v1/jobs/{job.pk}/{path}")
    assert (reply.status_code, refused(reply)["detail"]) == (status, f"job {job.pk} (digits) {sentence}")
    assert not AuditEntry.objects.exclude(action="job-submit").exists()


def test_a_job_that_is_over_has_nothing_to_operate(operator: APIClient, job: Job) -> None:
    Job.objects.update(state="succeeded")
    reply = operator.post(f"/api/v1/jobs/{job.pk}/workers/1/actions/exclude")
    assert refused(reply)["detail"] == (
        f"job {job.pk} (digits) is succeeded: only one that is running or paused can be given other workers"
    )


@pytest.fixture
def flag(job: Job) -> Flag:
    return a_flag(job, "compute-w3-0.1")


def a_flag(job: Job, key: str, **more: Any) -> Flag:
    fields = {"rank": 3, "kind": "compute", "persistence": "lasting", "sentence": "w3 is slow", "opened_at": NOW}
    return Flag.objects.create(job=job, key=key, **fields | more)


def note(client: APIClient, job: Job, key: str) -> Any:
    rows = client.get(f"/api/v1/jobs/{job.pk}/flags").json()["results"]
    return next(row["note"] for row in rows if row["key"] == key)


def test_a_flag_can_be_acknowledged(operator: APIClient, job: Job, flag: Flag) -> None:
    assert note(operator, job, flag.key) is None
    reply = operator.post(f"/api/v1/jobs/{job.pk}/flags/{flag.key}/actions/acknowledge")
    assert (reply.status_code, reply.json()["note"]["actor"], reply.json()["note"]["muted_until"]) == (
        200,
        "operator",
        None,
    )
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.detail) == ("flag-acknowledge", {"flag": flag.key, "about": "w3"})


def test_a_mute_holds_for_later_flags_of_that_kind_until_it_ends(operator: APIClient, job: Job, flag: Flag) -> None:
    where = f"/api/v1/jobs/{job.pk}/flags/{flag.key}/actions/mute"
    until = operator.post(where, {"minutes": 60}, format="json").json()["note"]["muted_until"]
    assert abs(datetime.fromisoformat(until) - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=5)
    later, other = a_flag(job, "compute-w3-0.2"), a_flag(job, "communication-w3-0.3", kind="communication")
    assert note(operator, job, later.key)["muted_until"] == until
    assert note(operator, job, other.key) is None
    FlagNote.objects.update(muted_until=NOW - timedelta(seconds=1))
    assert note(operator, job, later.key) is None
    operator.post(where, {"minutes": 5}, format="json")
    assert operator.post(where, {"minutes": 0}, format="json").json()["note"]["muted_until"] is None
    assert AuditEntry.objects.latest("id").action == "flag-unmute"


def test_a_flag_of_a_job_beyond_all_numbers_is_not_found(operator: APIClient) -> None:
    for action in ("acknowledge", "mute"):
        assert operator.post(f"/api/v1/jobs/{2**80}/flags/spec/actions/{action}", format="json").status_code == 404


def test_a_mute_has_an_end(operator: APIClient, job: Job, flag: Flag) -> None:
    reply = operator.post(f"/api/v1/jobs/{job.pk}/flags/{flag.key}/actions/mute", {"minutes": 10**6}, format="json")
    assert (reply.status_code, refused(reply)["errors"][0]["field"]) == (400, "minutes")
