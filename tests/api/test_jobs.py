"""Jobs over REST."""

import json
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from controlplane.core.events import StopRequested
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.sealing import unseal
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import names
from controlplane.runtime.log import decode_event
from tests.api.conftest import problem, refused
from tests.support.rows import SPEC, online_agent, submitted_job

pytestmark = pytest.mark.django_db


def log_of(redis_url: str, job: int) -> list[Any]:
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        return [decode_event(fields[b"e"]) for _, fields in client.xrange(names.events(job))]


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada")


def test_a_submission_is_accepted_and_its_log_begins(
    operator: APIClient, redis_url: str, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        reply = operator.post("/api/v1/jobs", SPEC, format="json")
    job = Job.objects.get()
    assert (reply.status_code, reply["Location"]) == (202, f"http://testserver/api/v1/jobs/{job.pk}")
    body = reply.json()
    assert {key: body[key] for key in ("id", "name", "state", "submitted_by", "policies", "spec")} == {
        "id": job.pk,
        "name": "digits",
        "state": "submitted",
        "submitted_by": "operator",
        "policies": {"batching": "lb-bsp-cpu", "barrier": "bsp", "placement": "round-robin", "data": "shared"},
        "spec": job.spec,
    }
    assert [event.spec for event in log_of(redis_url, job.pk)] == [parse_spec(SPEC)]


def test_a_job_reports_why_it_does_not_start(viewer: APIClient, ada: User) -> None:
    online_agent("m1", slots=1, labels={"gpu": "t4"})
    job = submitted_job(ada, labels={"gpu": "t4"})
    assert viewer.get(f"/api/v1/jobs/{job.pk}").json()["waiting"] == {
        "sentence": "cannot be scheduled: needs 2 worker slots and 1 server slot on machines labelled gpu=t4, "
        "and the machine with these labels offers 1 worker slot and 1 server slot in all: 1 worker slot is missing; "
        "have another machine join with --slots 1 and a token from: python manage.py enroll --label gpu=t4, or submit "
        "it with fewer",
        "status": "never",
        "standing": "never",
        "ahead": 0,
        "blockers": [],
        "labels": {"gpu": "t4"},
        "machines_online": 1,
        "machines_matching": 1,
        "worker_slots": 1,
        "server_slots": 1,
        "free_worker_slots": 1,
        "free_server_slots": 1,
    }


def test_a_list_of_jobs_reports_why_each_does_not_start(viewer: APIClient, ada: User) -> None:
    online_agent("m1")
    first, second = submitted_job(ada), submitted_job(ada)
    rows = {row["id"]: row["waiting"] for row in viewer.get("/api/v1/jobs").json()["results"]}
    assert (rows[first.pk]["status"], rows[second.pk]["status"]) == ("starts", "waits")
    [blocker] = rows[second.pk]["blockers"]
    assert (blocker["job"], blocker["name"], blocker["relation"]) == (first.pk, "digits", "ahead")
    assert (blocker["worker_slots"], blocker["server_slots"], blocker["priority"]) == (2, 1, 0)


def test_yaml_is_read_like_json(operator: APIClient, redis_url: str) -> None:
    text = """
        name: digits
        workload: {name: softmax-regression, dataset: digits}
        workers: 2
        batch_size: 64
        synchronization: {batching: lb-bsp-cpu}
        stop: {iterations: 100}
        seed: 7
    """
    reply = operator.post("/api/v1/jobs", text, content_type="application/yaml")
    assert (reply.status_code, parse_spec(Job.objects.get().spec)) == (202, parse_spec(SPEC | _bare()))


def _bare() -> dict[str, Any]:
    return {"synchronization": {"batching": "lb-bsp-cpu"}}


def test_a_field_at_fault_is_named_with_what_was_found_and_what_is_allowed(operator: APIClient) -> None:
    reply = operator.post("/api/v1/jobs", SPEC | {"workers": 0}, format="json")
    fault = ("workers", 0, "`int` >= 1")
    assert (reply.status_code, refused(reply)) == (400, problem(400, "workers: expected `int` >= 1", fault))
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("body", "media", "status", "detail"),
    [
        ("{", "application/json", 400, "the body is not JSON: Expecting property name enclosed in double quotes: "),
        ('{"seed": NaN}', "application/json", 400, "the body is not JSON: NaN is not a JSON number"),
        ("[" * 100_000, "application/json", 400, "the body is not JSON: it is nested too deeply"),
        (b"\xff", "application/json", 400, "the body is not UTF-8: byte 0 cannot be read"),
        (
            "a: &x 1\nb: *x",
            "application/yaml",
            400,
            "the body is not YAML: anchors and aliases are not supported; repeat",
        ),
        ("!!python/object:os.system {}", "application/yaml", 400, "the body is not YAML: could not determine a const"),
        ("a: [", "application/yaml", 400, "the body is not YAML: while parsing a flow node, did not find"),
        (" " * 1_048_577, "application/json", 413, "the body exceeds the limit of 1048576 bytes"),
        (
            *("a=1", "application/x-www-form-urlencoded", 415),
            'Unsupported media type "application/x-www-form-urlencoded" in request. Content-Type can be: '
            "application/json, application/yaml",
        ),
    ],
)
def test_a_body_that_cannot_be_read_is_a_problem(
    operator: APIClient, body: str | bytes, media: str, status: int, detail: str
) -> None:
    reply = operator.post("/api/v1/jobs", body, content_type=media)
    found = refused(reply)
    assert (reply.status_code, found["detail"][: len(detail)]) == (status, detail)


def test_dates_in_yaml_are_text(operator: APIClient) -> None:
    reply = operator.post("/api/v1/jobs", "name: 2026-03-02", content_type="text/yaml")
    assert refused(reply)["field"] == "workload"


def test_an_idempotency_key_leads_to_the_same_job(operator: APIClient, redis_url: str) -> None:
    replies = [operator.post("/api/v1/jobs", SPEC, format="json", headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert ([reply.status_code for reply in replies], len({reply["Location"] for reply in replies})) == ([202, 202], 1)
    assert Job.objects.count() == 1


def test_an_idempotency_key_with_another_spec_is_refused(operator: APIClient, redis_url: str) -> None:
    headers = {"Idempotency-Key": "k1"}
    operator.post("/api/v1/jobs", SPEC, format="json", headers=headers)
    reply = operator.post("/api/v1/jobs", SPEC | {"seed": 8}, format="json", headers=headers)
    sentence = f"this Idempotency-Key belongs to job {Job.objects.get().pk}, which has another spec; send a new key"
    assert (reply.status_code, refused(reply)) == (422, problem(422, sentence))


def test_a_bad_idempotency_key_is_named(operator: APIClient) -> None:
    reply = operator.post("/api/v1/jobs", SPEC, format="json", headers={"Idempotency-Key": "a b"})
    assert (reply.status_code, refused(reply)["field"]) == (400, "Idempotency-Key")


def test_lists_are_in_pages_and_can_be_filtered_and_ordered(viewer: APIClient, ada: User) -> None:
    jobs = [submitted_job(ada, name=name).pk for name in ("alpha", "beta", "beta two")]
    Job.objects.filter(pk=jobs[0]).update(state="running")

    def ids(query: str) -> list[int]:
        return [job["id"] for job in viewer.get(f"/api/v1/jobs?{query}").json()["results"]]

    first, second, third = jobs
    assert [ids(q) for q in ("", "state=submitted", "name=TWO", "ordering=id", "page_size=2&page=2")] == [
        [third, second, first],
        [third, second],
        [third],
        [first, second, third],
        [first],
    ]
    page = viewer.get("/api/v1/jobs?page_size=2").json()
    assert (page["count"], page["next"], page["previous"]) == (
        3,
        "http://testserver/api/v1/jobs?page=2&page_size=2",
        None,
    )


def test_a_filter_that_does_not_exist_is_a_problem(viewer: APIClient) -> None:
    reply = viewer.get("/api/v1/jobs?state=asleep")
    fault = ("state", "asleep", "Select a valid choice. asleep is not one of the available choices.")
    assert (reply.status_code, refused(reply)) == (400, problem(400, f"state: {fault[2]}", fault))


def test_stopping_appends_the_wish_and_leaves_an_audit_entry(operator: APIClient, ada: User, redis_url: str) -> None:
    job = submitted_job(ada)
    reply = operator.post(f"/api/v1/jobs/{job.pk}/actions/stop")
    assert (reply.status_code, reply.json()["id"]) == (202, job.pk)
    submitted, stop = log_of(redis_url, job.pk)
    assert (submitted.spec, stop) == (parse_spec(SPEC), StopRequested(actor="operator"))
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor, entry.action, entry.subject) == ("operator", "job-stop", f"job {job.pk} (digits)")


def test_a_job_that_is_over_cannot_be_stopped(operator: APIClient, ada: User) -> None:
    job = submitted_job(ada)
    Job.objects.update(state="failed")
    reply = operator.post(f"/api/v1/jobs/{job.pk}/actions/stop")
    sentence = f"job {job.pk} (digits) is already over (failed)"
    assert (reply.status_code, refused(reply)) == (409, problem(409, sentence))


def test_without_redis_a_job_is_kept_and_a_stop_is_not(
    operator: APIClient, settings: Any, tmp_path: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nobody.sock"
    with django_capture_on_commit_callbacks(execute=True):
        assert operator.post("/api/v1/jobs", SPEC, format="json").status_code == 202
    job = Job.objects.get()
    reply = operator.post(f"/api/v1/jobs/{job.pk}/actions/stop")
    assert (reply.status_code, refused(reply)["detail"].partition(" (Error")[0]) == (
        503,
        f"job {job.pk} (digits) was not stopped: Redis does not answer",
    )
    assert not AuditEntry.objects.filter(action="job-stop").exists()


def test_numbers_that_no_table_can_hold_are_unknown_jobs(viewer: APIClient) -> None:
    for path in (f"jobs/{10**30}", f"jobs/{10**30}/metrics?metric=loss", f"jobs/{10**30}/decisions"):
        assert refused(viewer.get(f"/api/v1/{path}"))["status"] == 404


def test_the_key_of_a_job_is_in_no_answer(viewer: APIClient, ada: User) -> None:
    job = submitted_job(ada)
    key = unseal(job.key).hex()
    for path in ("jobs", f"jobs/{job.pk}", f"jobs/{job.pk}/processes", f"jobs/{job.pk}/events"):
        assert key not in json.dumps(viewer.get(f"/api/v1/{path}").json())


def test_an_operator_changes_the_priority_of_a_job_that_waits(operator: APIClient, ada: User, redis_url: str) -> None:
    job = submitted_job(ada, priority=-5)
    reply = operator.patch(f"/api/v1/jobs/{job.pk}", {"priority": 20}, format="json")
    assert (reply.status_code, reply.json()["priority"]) == (200, 20)
    entry = AuditEntry.objects.get(action="job-priority")
    assert (entry.actor, entry.subject, entry.detail) == ("operator", str(job), {"from": -5, "to": 20})
    assert operator.get("/api/v1/jobs").json()["results"][0]["priority"] == 20


def test_the_priority_of_a_job_that_runs_is_not_changed(operator: APIClient, ada: User) -> None:
    job = submitted_job(ada)
    Job.objects.filter(pk=job.pk).update(state="running")
    reply = operator.patch(f"/api/v1/jobs/{job.pk}", {"priority": 20}, format="json")
    assert refused(reply) == problem(409, f"{job} is no longer queued: the priority only affects queued jobs")
    assert not AuditEntry.objects.filter(action="job-priority").exists()


def test_a_viewer_changes_no_priority(viewer: APIClient, ada: User) -> None:
    job = submitted_job(ada)
    assert viewer.patch(f"/api/v1/jobs/{job.pk}", {"priority": 20}, format="json").status_code == 403


@pytest.mark.parametrize(
    ("body", "field", "expected"),
    [
        ({"priority": 101}, "priority", "`int` <= 100"),
        ({"priority": "high"}, "priority", "`int`, got `str`"),
        ({"name": "x"}, "", 'an object with priority alone, such as {"priority": 10}'),
        ([], "", 'an object with priority alone, such as {"priority": 10}'),
    ],
)
def test_what_is_no_priority_is_refused(operator: APIClient, ada: User, body: Any, field: str, expected: str) -> None:
    reply = operator.patch(f"/api/v1/jobs/{submitted_job(ada).pk}", body, format="json")
    told = refused(reply)
    assert (reply.status_code, told["field"], told["expected"]) == (400, field, expected)


def test_a_priority_beyond_the_most_is_refused_with_the_spec(operator: APIClient) -> None:
    told = refused(operator.post("/api/v1/jobs", SPEC | {"priority": -101}, format="json"))
    assert (told["field"], told["found"], told["expected"]) == ("priority", -101, "`int` >= -100")
