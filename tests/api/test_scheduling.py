"""Cordon, drain and uncordon over REST and the command, and where slots go meanwhile."""

import io
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from controlplane.core.events import DrainRequested, InclusionRequested, ServerRequested
from controlplane.fleet.models import Agent, Move, Reservation
from controlplane.fleet.reservations import replace_slot
from controlplane.fleet.selectors import slots_now
from controlplane.jobs.models import AuditEntry, Job, Process
from controlplane.jobs.waiting import waiting_of
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import draining, names, tasks
from controlplane.runtime.job_failures import failed_steps
from controlplane.runtime.log import decode_event, start_log
from controlplane.runtime.maintenance import keep_windows
from controlplane.runtime.redis import shared
from controlplane.scheduling.draining import UNREADABLE
from tests.api.conftest import problem, refused
from tests.support.rows import online_agent, reserve, submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def running_job(*, workers: int = 2, servers: int = 1) -> Job:
    """A job that runs with all its processes on the machines that are there."""
    ann, _ = User.objects.get_or_create(username="ann")
    job = submitted_job(ann, workers=workers, servers=servers)
    start_log(job.pk, parse_spec(job.spec))
    now = timezone.now()
    for slot in reserve(job.pk, {}, workers=workers, servers=servers) or []:
        fields = {
            "instance": f"{slot.role[0]}{slot.index}.0.1",
            "state": "ready",
            "state_since": now,
            "started_at": now,
        }
        Process.objects.create(job=job, role=slot.role, index=slot.index, agent_id=slot.agent, slot=slot.slot, **fields)
    Job.objects.filter(pk=job.pk).update(state="running")
    return Job.objects.get(pk=job.pk)


def requests_to(job: Job) -> list[Any]:
    events = [decode_event(entry[1][b"e"]) for entry in shared().xrange(names.events(job.pk))]
    return [each for each in events if isinstance(each, DrainRequested | InclusionRequested | ServerRequested)]


def test_a_cordoned_machine_gets_no_new_processes_and_keeps_those_it_has(operator: APIClient) -> None:
    one = online_agent("m1")
    job = running_job()
    reply = operator.post(f"/api/v1/agents/{one.pk}/actions/cordon", {"reason": "new disks"}, format="json")
    assert reply.status_code == 200
    shown = {name: reply.json()[name] for name in ("scheduling", "scheduling_reason", "scheduling_by")}
    assert shown == {"scheduling": "cordoned", "scheduling_reason": "new disks", "scheduling_by": "operator"}
    assert slots_now().offers == ()
    back = replace_slot(job.pk, {}, "worker", 0)
    assert back is not None
    assert back.agent == one.pk
    assert draining.drain_machines() == []
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.subject, entry.detail) == (
        "agent-cordon",
        "agent m1",
        {"machine": "m1", "reason": "new disks"},
    )


def test_a_second_cordon_is_refused_with_who_made_the_first(operator: APIClient) -> None:
    one = online_agent("m1")
    operator.post(f"/api/v1/agents/{one.pk}/actions/cordon")
    since = f"{Agent.objects.get().scheduling_since:%Y-%m-%d %H:%M} UTC"
    again = operator.post(f"/api/v1/agents/{one.pk}/actions/cordon")
    assert refused(again) == problem(409, f"agent 'm1' is cordoned since {since} by operator")


def test_a_waiting_job_names_the_cordoned_machine_that_it_could_use(operator: APIClient) -> None:
    one = online_agent("m1")
    operator.post(f"/api/v1/agents/{one.pk}/actions/cordon")
    job = submitted_job(User.objects.create_user("ann"))
    waiting = waiting_of([job], timezone.now())[job.pk]
    assert waiting.sentence.endswith("no machine takes new processes: m1 is cordoned or drained; uncordon m1")


def test_the_preview_of_a_drain_names_machine_and_time(viewer: APIClient) -> None:
    one = online_agent("m1")
    running_job()
    two = online_agent("m2")
    found = viewer.get(f"/api/v1/agents/{one.pk}/drain").json()
    assert {move["machine"] for move in found["moves"]} == {two.pk}
    assert [move["sentence"] for move in found["moves"]] == ["moves to m2"] * 3
    assert found["seconds"] == 50.0


def test_a_job_whose_spec_is_refused_holds_up_neither_a_drain_nor_the_queue(operator: APIClient) -> None:
    one = online_agent("m1", server_slots=2)
    refused_job, job = running_job(workers=1), running_job(workers=1)
    Job.objects.filter(pk=refused_job.pk).update(spec=refused_job.spec | {"workers": "x"})
    waiting = submitted_job(User.objects.create_user("eve"))
    two = online_agent("m2")
    preview = operator.get(f"/api/v1/agents/{one.pk}/drain").json()
    sentences = {move["job"]: move["sentence"] for move in preview["moves"]}
    assert sentences[refused_job.pk] == UNREADABLE
    assert preview["seconds"] is None
    operator.post(f"/api/v1/agents/{one.pk}/actions/drain")
    tasks.schedule()
    assert Move.objects.filter(job_id=job.pk).exists(), "the other job is asked to leave"
    assert Reservation.objects.filter(job_id=waiting.pk, agent=two).exists(), "a waiting job gets slots meanwhile"
    assert f"job {refused_job.pk} is skipped in draining a machine (UnreadableSpec" in failed_steps(shared())


def test_a_drained_machine_loses_its_workers_and_servers_to_others(operator: APIClient) -> None:
    one = online_agent("m1")
    job = running_job()
    two = online_agent("m2")
    operator.post(f"/api/v1/agents/{one.pk}/actions/drain")
    assert draining.drain_machines() == [job.pk, job.pk]
    by = "drain of m1"
    assert requests_to(job) == [DrainRequested(actor=by, role="worker", index=0), ServerRequested(actor=by)]
    assert draining.drain_machines() == [], "nothing has been answered yet"
    Process.objects.filter(role="worker", index=0).update(state="stopped", ended_at=timezone.now())
    Reservation.objects.filter(role="worker", index=0).delete()
    draining.drain_machines()
    assert requests_to(job)[-1] == InclusionRequested(actor=by, rank=0)
    again = replace_slot(job.pk, {}, "worker", 0)
    assert again is not None
    assert again.agent == two.pk
    now = timezone.now()
    times = {"state": "ready", "state_since": now, "started_at": now}
    Process.objects.create(job=job, role="worker", index=0, instance="w0.0.2", agent=two, **times)
    Process.objects.create(job=job, role="server", index=1, instance="s1.0.1", agent=two, **times)
    draining.drain_machines()
    sent = requests_to(job)[-2:]
    assert DrainRequested(actor=by, role="worker", index=1) in sent
    assert DrainRequested(actor=by, role="server", index=0) in sent
    assert Move.objects.get(role="worker", index=0).stage == "moved"
    shown = operator.get(f"/api/v1/agents/{one.pk}").json()["moves"]
    assert [(move["role"], move["index"], move["stage"]) for move in shown] == [
        ("worker", 0, "moved"),
        ("worker", 1, "leaving"),
        ("server", 0, "leaving"),
    ]


def test_a_worker_that_was_leaving_comes_back_when_the_drain_is_ended(operator: APIClient) -> None:
    one = online_agent("m1")
    job = running_job(workers=2, servers=1)
    operator.post(f"/api/v1/agents/{one.pk}/actions/drain")
    draining.drain_machines()
    operator.post(f"/api/v1/agents/{one.pk}/actions/uncordon")
    Process.objects.filter(role="worker", index=0).update(state="stopped", ended_at=timezone.now())
    Reservation.objects.filter(role="worker", index=0).delete()
    draining.drain_machines()
    assert requests_to(job)[-1] == InclusionRequested(actor="drain of m1", rank=0)
    Process.objects.create(
        job=job,
        role="worker",
        index=0,
        instance="w0.0.2",
        agent=one,
        state="ready",
        state_since=timezone.now(),
        started_at=timezone.now(),
    )
    draining.drain_machines()
    assert draining.drain_machines() == []
    assert not Move.objects.filter(ended_at=None).exists()


def test_the_command_lists_previews_and_drains() -> None:
    online_agent("m1")
    running_job()
    online_agent("m2")

    def said(*arguments: str) -> str:
        output = io.StringIO()
        call_command("machines", *arguments, stdout=output)
        return output.getvalue()

    assert said("list").splitlines() == ["m1: online, open, 3 slots in use", "m2: online, open, 0 slots in use"]
    assert said("drain", "m1", "--preview").splitlines()[-1] == "empty in about 50 s"
    assert said("drain", "m2", "--preview") == "no processes run on m2\n"
    assert Agent.objects.get(name="m1").scheduling == "open"
    assert said("drain", "m1", "--reason", "new disks").splitlines()[-1] == "m1 is being drained"
    assert said("uncordon", "m1").strip() == "m1 is open to new processes"
    with pytest.raises(CommandError, match="machine 'm3' does not exist; list machines with"):
        said("cordon", "m3")


NOON = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(days=1)


def plan(client: APIClient, agent: Agent, **more: Any) -> Any:
    times = {"begins_at": NOON.isoformat(), "ends_at": (NOON + timedelta(hours=2)).isoformat()}
    fields = times | {"action": "drain", "lead_s": 600, "reason": "new disks"} | more
    return client.post(f"/api/v1/agents/{agent.pk}/windows", fields, format="json")


def test_a_maintenance_window_drains_before_its_begin_and_opens_at_its_end(operator: APIClient) -> None:
    one = online_agent("m1")
    assert plan(operator, one).status_code == 201
    assert keep_windows(NOON - timedelta(seconds=601)) == []
    assert keep_windows(NOON - timedelta(seconds=600)) == ["m1"]
    one.refresh_from_db()
    assert (one.scheduling, one.scheduling_by, one.scheduling_reason) == ("draining", "maintenance window", "new disks")
    assert keep_windows(NOON + timedelta(hours=1)) == []
    assert keep_windows(NOON + timedelta(hours=2)) == ["m1"]
    one.refresh_from_db()
    assert (one.scheduling, operator.get(f"/api/v1/agents/{one.pk}/windows").json()) == ("open", [])
    assert list(AuditEntry.objects.filter(actor="maintenance window").values_list("action", flat=True)) == [
        "agent-drain",
        "agent-uncordon",
    ]


def test_a_window_that_is_cancelled_opens_what_it_closed(operator: APIClient) -> None:
    one = online_agent("m1")
    window = plan(operator, one).json()["id"]
    keep_windows(NOON)
    assert operator.delete(f"/api/v1/agents/{one.pk}/windows/{window}").status_code == 204
    one.refresh_from_db()
    assert one.scheduling == "open"
    again = refused(operator.delete(f"/api/v1/agents/{one.pk}/windows/{window}"))
    assert again["detail"] == f"maintenance window {window} is over already"


def test_a_window_that_ends_before_it_begins_is_refused(operator: APIClient) -> None:
    told = refused(plan(operator, online_agent("m1"), ends_at=NOON.isoformat()))
    assert told == problem(409, f"ends_at: found {NOON:%Y-%m-%d %H:%M} UTC, expected a time after begins_at")


def test_added_labels_place_jobs_and_those_of_the_token_stay(admin: APIClient, operator: APIClient) -> None:
    one = online_agent("m1", labels={"pool": "a100"})
    path = f"/api/v1/agents/{one.pk}/labels"
    assert admin.put(path, {"labels": {"rack": "3"}}, format="json").json()["added_labels"] == {"rack": "3"}
    assert slots_now().offers[0].labels == {"rack": "3", "pool": "a100"}
    told = refused(admin.put(path, {"labels": {"pool": "h100"}}, format="json"))
    assert told["detail"].startswith(
        "labels: found pool=h100, expected another key: pool=a100 is from the enrolment token"
    )
    assert operator.put(path, {"labels": {}}, format="json").status_code == 403
    assert Agent.objects.get().placed_by == {"rack": "3", "pool": "a100"}


def test_windows_and_labels_are_set_on_the_page(admin: APIClient) -> None:
    one = online_agent("m1", labels={"pool": "a100"})
    browser = Client()
    browser.force_login(User.objects.get(username="admin"))
    page = f"/workers/{one.pk}/"
    assert browser.post(f"{page}labels/", {"labels": "rack=3\nzone=b\n"}).status_code == 302
    assert Agent.objects.get().added_labels == {"rack": "3", "zone": "b"}
    wrong = browser.post(f"{page}labels/", {"labels": "rack"})
    assert (wrong.status_code, "found &#x27;rack&#x27;, expected key=value" in wrong.content.decode()) == (400, True)
    times = {"begins_at": f"{NOON:%Y-%m-%dT%H:%M}", "ends_at": f"{NOON + timedelta(hours=1):%Y-%m-%dT%H:%M}"}
    fields = times | {"action": "cordon", "lead": "5", "reason": "disks"}
    assert browser.post(f"{page}window/", fields).status_code == 302
    body = browser.get(page).content.decode()
    assert f"{NOON:%Y-%m-%d %H:%M} UTC" in body
    assert "rack=3" in body
    late = browser.post(f"{page}window/", fields | {"ends_at": times["begins_at"]})
    assert (late.status_code, "expected a time after begins_at" in late.content.decode()) == (400, True)
