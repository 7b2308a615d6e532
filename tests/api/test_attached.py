"""Attached jobs over REST: their tokens, which are shown once."""

import contextlib

import pytest
from rest_framework.test import APIClient

from controlplane.core.events import LAUNCHER, LauncherEnded, StopRequested
from controlplane.jobs.models import AuditEntry, Job, JobToken
from controlplane.jobs.queue import queued_jobs
from controlplane.jobs.sealing import unseal
from controlplane.jobs.tokens import rank_verdict_on, verdict_on
from controlplane.protocol.keys import ranks_token
from controlplane.runtime.presence import last_seen
from controlplane.runtime.redis import connect
from tests.api.conftest import refused
from tests.runtime.support import logged
from tests.support.rows import SPEC

pytestmark = pytest.mark.django_db

ATTACHED = {"name": "mine", "launch": "attached", "workers": 2, "batch_size": 32}


@pytest.fixture
def submitted(operator: APIClient) -> dict[str, object]:
    reply = operator.post("/api/v1/jobs", ATTACHED, format="json")
    assert reply.status_code == 202, reply.content
    answer: dict[str, object] = reply.json()
    return answer


def test_a_submission_carries_the_token_once(operator: APIClient, submitted: dict[str, object]) -> None:
    assert (submitted["launch"], submitted["workload"], submitted["servers"]) == ("attached", "attached", 0)
    assert verdict_on(str(submitted["token"]), int(str(submitted["id"]))).good
    assert "token" not in operator.get(f"/api/v1/jobs/{submitted['id']}").json()


def test_a_native_job_has_one_where_its_launcher_asks(operator: APIClient, anybody: APIClient, redis_url: str) -> None:
    reply = operator.post("/api/v1/jobs", SPEC, format="json")
    assert (reply.json()["launch"], reply.json()["token"]) == ("native", None)
    path = f"/api/v1/jobs/{reply.json()['id']}"
    token = operator.post(f"{path}/token", {}, format="json").json()["token"]
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert anybody.get(path).json()["state"] == "submitted"
    assert (
        anybody.post(f"{path}/actions/stop", {"reason": "Slurm job 3 was cancelled"}, format="json").status_code == 202
    )


SCRIPT = {**ATTACHED, "command": ["python", "train.py"]}


def test_agents_have_the_token_of_a_script_that_they_start(operator: APIClient, redis_url: str) -> None:
    reply = operator.post("/api/v1/jobs", SCRIPT, format="json").json()
    assert (reply["token"], reply["state"], reply["spec"]["command"]) == (None, "submitted", SCRIPT["command"])
    job = Job.objects.get(pk=reply["id"])
    secret = ranks_token(unseal(job.key))
    assert rank_verdict_on(secret, job.pk).good
    assert operator.delete(f"/api/v1/jobs/{job.pk}/token").status_code == 204
    assert not rank_verdict_on(secret, job.pk).good


def test_a_script_that_agents_start_waits_for_slots(operator: APIClient, redis_url: str) -> None:
    numbers = [operator.post("/api/v1/jobs", each, format="json").json()["id"] for each in (SPEC, ATTACHED, SCRIPT)]
    assert [job.pk for job in queued_jobs()] == [numbers[0], numbers[2]]
    waiting = operator.get(f"/api/v1/jobs/{numbers[2]}").json()["waiting"]
    assert "--allow-scripts DIR" in waiting["sentence"]


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("actions/finish", {"exit_code": 0}, "agents start its script and report how it ends; use actions/stop"),
        ("lease", {}, "agents start its script, so it has no other launcher"),
        ("token", {}, "its agents pass its ranks a token that does not change; DELETE revokes it"),
    ],
)
def test_what_is_for_launchers_is_refused_where_agents_start_the_script(
    operator: APIClient, redis_url: str, path: str, body: dict[str, int], sentence: str
) -> None:
    number = operator.post("/api/v1/jobs", SCRIPT, format="json").json()["id"]
    answer = refused(operator.post(f"/api/v1/jobs/{number}/{path}", body, format="json"))
    assert (answer["status"], sentence in answer["detail"]) == (409, True), answer


def test_a_viewer_names_no_command(viewer: APIClient) -> None:
    assert viewer.post("/api/v1/jobs", SCRIPT, format="json").status_code == 403


def test_a_submission_that_comes_again_shows_no_token(operator: APIClient) -> None:
    first, again = (
        operator.post("/api/v1/jobs", ATTACHED, format="json", headers={"Idempotency-Key": "k"}).json()
        for _ in range(2)
    )
    assert first["id"] == again["id"]
    assert (again["token"], JobToken.objects.count()) == (None, 1)


def test_rotating_makes_another_and_ends_the_first(operator: APIClient, submitted: dict[str, object]) -> None:
    number, first = int(str(submitted["id"])), str(submitted["token"])
    reply = operator.post(f"/api/v1/jobs/{number}/token", {}, format="json")
    assert (reply.status_code, reply.json()["job"], reply.json()["grace_s"]) == (201, number, 0)
    assert verdict_on(reply.json()["token"], number).good
    assert not verdict_on(first, number).good


def test_a_stated_grace_keeps_the_first_good(operator: APIClient, submitted: dict[str, object]) -> None:
    number, first = int(str(submitted["id"])), str(submitted["token"])
    operator.post(f"/api/v1/jobs/{number}/token", {"grace_s": 60}, format="json")
    assert verdict_on(first, number).good
    listed = operator.get(f"/api/v1/jobs/{number}/token").json()["tokens"]
    assert [row["ends_at"] is None for row in listed] == [True, False]
    assert {"id", "created_at", "created_by", "ends_at"} == listed[0].keys()


@pytest.mark.parametrize("grace_s", [-1, 3601, "soon"])
def test_a_grace_out_of_range_is_refused(operator: APIClient, submitted: dict[str, object], grace_s: object) -> None:
    answer = refused(operator.post(f"/api/v1/jobs/{submitted['id']}/token", {"grace_s": grace_s}, format="json"))
    assert answer["errors"][0]["field"] == "grace_s"


def test_revoking_ends_all(operator: APIClient, submitted: dict[str, object]) -> None:
    number = int(str(submitted["id"]))
    assert operator.delete(f"/api/v1/jobs/{number}/token").status_code == 204
    assert not verdict_on(str(submitted["token"]), number).good
    assert operator.get(f"/api/v1/jobs/{number}/token").json()["tokens"] == []


def test_a_job_that_is_over_gets_no_token(operator: APIClient, submitted: dict[str, object]) -> None:
    Job.objects.filter(pk=submitted["id"]).update(state="failed")
    answer = refused(operator.post(f"/api/v1/jobs/{submitted['id']}/token", {}, format="json"))
    assert (answer["status"], "submit a new job" in answer["detail"]) == (409, True)


def test_tokens_are_operators_business(viewer: APIClient, submitted: dict[str, object]) -> None:
    path = f"/api/v1/jobs/{submitted['id']}/token"
    replies = [viewer.get(path), viewer.post(path, {}, format="json"), viewer.delete(path)]
    assert [reply.status_code for reply in replies] == [200, 403, 403]


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/{id}/policy", "/api/v1/me", "/api/v1/agents"])
def test_a_jobs_token_is_no_persons(anybody: APIClient, submitted: dict[str, object], path: str) -> None:
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {submitted['token']}")
    answer = refused(anybody.get(path.format(**submitted)))
    assert (answer["status"], "a token of a job's ranks" in answer["detail"]) == (401, True)


def test_a_jobs_token_reads_and_stops_its_job_and_changes_nothing_else(
    operator: APIClient, anybody: APIClient, submitted: dict[str, object], redis_url: str
) -> None:
    path = f"/api/v1/jobs/{submitted['id']}"
    other = operator.post("/api/v1/jobs", ATTACHED, format="json").json()["id"]
    shown = launched(anybody, submitted)
    assert shown.get(path).json()["state"] == "submitted"
    assert refused(shown.patch(path, {"priority": 3}, format="json"))["status"] == 403
    assert refused(shown.get(f"/api/v1/jobs/{other}"))["status"] == 401
    assert refused(shown.post(f"/api/v1/jobs/{other}/actions/stop", {}, format="json"))["status"] == 401
    reason = "Slurm job 3 was cancelled"
    assert shown.post(f"{path}/actions/stop", {"reason": reason}, format="json").status_code == 202
    with contextlib.closing(connect()) as client:
        events = [entry.event for entry in logged(client, int(str(submitted["id"])))]
    assert events[-1] == StopRequested(actor="launcher", reason=reason)
    assert events[-1].sentence == "stopped by launcher: Slurm job 3 was cancelled"
    row = AuditEntry.objects.get(action="job-stop")
    assert (row.actor, row.detail) == ("launcher", {"reason": reason})


def test_a_reason_to_stop_that_is_too_long_is_refused(operator: APIClient, submitted: dict[str, object]) -> None:
    path = f"/api/v1/jobs/{submitted['id']}/actions/stop"
    assert refused(operator.post(path, {"reason": "x" * 2001}, format="json"))["errors"][0]["field"] == "reason"


def test_what_has_no_place_is_refused_with_the_cure(operator: APIClient) -> None:
    answer = refused(operator.post("/api/v1/jobs", {**ATTACHED, "servers": 2}, format="json"))
    assert answer["errors"][0]["field"] == "servers"
    assert "launch: native" in answer["errors"][0]["expected"]


def launched(anybody: APIClient, submitted: dict[str, object]) -> APIClient:
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {submitted['token']}")
    return anybody


def test_the_launchers_exit_code_is_noted_in_the_log_by_the_jobs_own_token(
    anybody: APIClient, submitted: dict[str, object], redis_url: str
) -> None:
    said = {"exit_code": 3, "reason": "CUDA out of memory"}
    path = f"/api/v1/jobs/{submitted['id']}/actions/finish"
    reply = launched(anybody, submitted).post(path, said, format="json")
    assert (reply.status_code, reply.json()["id"]) == (202, submitted["id"])
    with contextlib.closing(connect()) as client:
        events = [entry.event for entry in logged(client, int(str(submitted["id"])))]
    assert events[-1] == LauncherEnded(actor="launcher", **said)
    row = AuditEntry.objects.get(action="job-finish")
    assert (row.actor, row.detail) == ("launcher", {"exit_code": 3, "reason": "CUDA out of memory"})


def test_a_token_of_another_job_finishes_nothing(
    operator: APIClient, anybody: APIClient, submitted: dict[str, object]
) -> None:
    other = operator.post("/api/v1/jobs", ATTACHED, format="json").json()
    path = f"/api/v1/jobs/{other['id']}/actions/finish"
    answer = refused(launched(anybody, submitted).post(path, {"exit_code": 0}, format="json"))
    assert (answer["status"], "must be of one job" in answer["detail"]) == (401, True)


def test_a_revoked_token_finishes_nothing(
    operator: APIClient, anybody: APIClient, submitted: dict[str, object]
) -> None:
    operator.delete(f"/api/v1/jobs/{submitted['id']}/token")
    path = f"/api/v1/jobs/{submitted['id']}/actions/finish"
    answer = refused(launched(anybody, submitted).post(path, {"exit_code": 0}, format="json"))
    assert (answer["status"], "ended at" in answer["detail"]) == (401, True)


def test_a_job_that_is_over_reports_it_to_its_launcher(anybody: APIClient, submitted: dict[str, object]) -> None:
    Job.objects.filter(pk=submitted["id"]).update(state="cancelled")
    path = f"/api/v1/jobs/{submitted['id']}/actions/finish"
    answer = refused(launched(anybody, submitted).post(path, {"exit_code": 0}, format="json"))
    assert (answer["status"], "is over (cancelled)" in answer["detail"]) == (409, True)


def test_a_lease_is_renewed_by_the_jobs_own_token_and_is_a_heartbeat_for_the_engine(
    anybody: APIClient, submitted: dict[str, object], redis_url: str
) -> None:
    reply = launched(anybody, submitted).post(f"/api/v1/jobs/{submitted['id']}/lease")
    assert (reply.status_code, reply.content) == (204, b"")
    with contextlib.closing(connect()) as client:
        seen = last_seen(client, int(str(submitted["id"])))
    assert [*seen] == [LAUNCHER]
    assert not AuditEntry.objects.filter(action__contains="lease").exists()


def test_a_lease_of_a_native_job_or_one_that_is_over_is_refused(
    operator: APIClient, submitted: dict[str, object]
) -> None:
    native = operator.post("/api/v1/jobs", SPEC, format="json").json()["id"]
    answer = refused(operator.post(f"/api/v1/jobs/{native}/lease"))
    assert (answer["status"], "has no launcher" in answer["detail"]) == (409, True)
    Job.objects.filter(pk=submitted["id"]).update(state="failed")
    answer = refused(operator.post(f"/api/v1/jobs/{submitted['id']}/lease"))
    assert (answer["status"], "is over (failed)" in answer["detail"]) == (409, True)


def test_a_native_job_is_not_finished_by_a_launcher(operator: APIClient) -> None:
    number = operator.post("/api/v1/jobs", SPEC, format="json").json()["id"]
    answer = refused(operator.post(f"/api/v1/jobs/{number}/actions/finish", {"exit_code": 0}, format="json"))
    assert (answer["status"], "actions/stop" in answer["detail"]) == (409, True)


@pytest.mark.parametrize("said", [{}, {"exit_code": "well"}, {"exit_code": 256}])
def test_an_end_without_an_exit_code_is_refused(
    operator: APIClient, submitted: dict[str, object], said: dict[str, object]
) -> None:
    path = f"/api/v1/jobs/{submitted['id']}/actions/finish"
    assert refused(operator.post(path, said, format="json"))["errors"][0]["field"] == "exit_code"


def test_it_does_not_wait_for_slots(submitted: dict[str, object]) -> None:
    assert not queued_jobs().exists()
