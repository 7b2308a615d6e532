"""Tests of machines over REST and by the command."""

import io
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone
from redis.exceptions import ConnectionError as RedisLost
from rest_framework.test import APIClient

from controlplane.api import machine_tests as requests
from controlplane.fleet.machine_tests import preflight_ended, preflight_request
from controlplane.fleet.models import Agent, MachineTest, Reservation
from controlplane.jobs.models import AuditEntry
from controlplane.protocol.machine_tests import MachineTested
from controlplane.runtime import names
from controlplane.runtime.redis import shared
from tests.api.conftest import problem, refused
from tests.support.rows import online_agent

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def full(**_: Any) -> None:
    raise OperationalError("database is locked")


def machine(name: str = "m1", **offer: Any) -> Agent:
    return online_agent(name, **{"tests": True, **offer})


def succeeded(agent: Agent, *, flops: float = 1e11) -> MachineTest:
    row = preflight_request(agent=agent, actor="ann", now=timezone.now())
    preflight_ended(agent.pk, MachineTested(number=1, test=row.pk, cpu_flops=flops, seconds=3.0))
    return row


def test_a_test_is_requested_audited_and_sent_to_all_participants(operator: APIClient) -> None:
    one, two = machine("m1"), machine("m2")
    heard = shared().pubsub()
    heard.subscribe(names.agent_test(one.pk), names.agent_test(two.pk))
    reply = operator.post(f"/api/v1/agents/{one.pk}/actions/test")
    assert reply.status_code == 202
    assert {name: reply.json()[name] for name in ("state", "requested_by", "forced", "ended_at", "measured")} == {
        "state": "starting",
        "requested_by": "operator",
        "forced": False,
        "ended_at": None,
        "measured": [],
    }
    told = {message["channel"] for _ in range(4) if (message := heard.get_message(timeout=5))}
    assert told == {names.agent_test(each.pk).encode() for each in (one, two)}
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.subject, entry.detail) == (
        "agent-test",
        "agent m1",
        {"machine": "m1", "test": reply.json()["id"]},
    )


def test_a_machine_that_runs_processes_is_refused_unless_forced(operator: APIClient) -> None:
    one = machine()
    Reservation.objects.create(agent=one, role="worker", slot=0, job_id=7, index=0)
    path = f"/api/v1/agents/{one.pk}/actions/test"
    sentence = "agent 'm1' has 1 slot in use (job #7), which a test would slow down: drain it first, or force the test"
    assert refused(operator.post(path)) == problem(409, sentence)
    assert operator.post(path, {"force": True}, format="json").json()["forced"] is True


def test_a_test_that_redis_cannot_tell_of_is_forgotten(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine()

    def lost(*_: Any) -> None:
        raise RedisLost("gone")

    monkeypatch.setattr(requests.machine_tests, "notify", lost)
    reply = operator.post(f"/api/v1/agents/{one.pk}/actions/test")
    assert refused(reply) == problem(503, "m1 was not tested: Redis does not answer (gone); try again")
    assert not MachineTest.objects.exists()
    assert list(AuditEntry.objects.order_by("pk").values_list("actor", "action")) == [
        ("operator", "agent-test"),
        ("control plane", "agent-test-withdrawn"),
    ]


def test_a_test_is_sent_to_machines_after_its_audit_entry(operator: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    one, told = machine(), list[bool]()
    monkeypatch.setattr(requests.machine_tests, "notify", lambda *_: told.append(True))
    monkeypatch.setattr(requests, "audit", full)
    assert operator.post(f"/api/v1/agents/{one.pk}/actions/test").status_code == 503
    assert (told, MachineTest.objects.count()) == ([], 0)


def test_results_are_read_with_the_median_of_the_class(viewer: APIClient) -> None:
    one, two = machine("m1"), machine("m2")
    succeeded(two)
    succeeded(one, flops=8e10)
    [row] = viewer.get(f"/api/v1/agents/{one.pk}/tests").json()
    assert (row["state"], row["machine_class"], row["seconds"]) == ("succeeded", "unknown CPU, 8 CPUs", 3.0)
    assert row["measured"] == [
        {
            "name": "cpu_flops",
            "machine": "",
            "title": "CPU, float32",
            "unit": "GFLOP/s",
            "value": 80.0,
            "median": 100.0,
            "others": 1,
            "deviation": pytest.approx(-0.2),
            "sentence": "20 % below the median of 1 other machine of its class",
            "slow": True,
        }
    ]
    assert row["failed_links"] == [{"machine": "m2", "failure": "it did not answer in 5 s"}]


def test_the_command_waits_for_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine()

    def answer(_: float) -> None:
        row = MachineTest.objects.get(ended_at=None)
        preflight_ended(one.pk, MachineTested(number=1, test=row.pk, cpu_flops=3.2e12, seconds=3.0))

    monkeypatch.setattr("controlplane.api.management.commands.machines.time.sleep", answer)
    said = io.StringIO()
    call_command("machines", "test", "m1", stdout=said)
    assert said.getvalue().splitlines() == [
        "CPU, float32: 3,200 GFLOP/s, no other machine of its class was measured",
        "Class: unknown CPU, 8 CPUs",
    ]
    Agent.objects.update(state="offline")
    with pytest.raises(CommandError, match="agent 'm1' is offline: test it once it is back"):
        call_command("machines", "test", "m1")


def test_the_command_beside_no_redis_reports_it_and_writes_nothing(settings: Any) -> None:
    machine()
    settings.REDIS_URL = ""
    with pytest.raises(CommandError, match="m1 was not tested: REDIS_URL is not set"):
        call_command("machines", "test", "m1")
    assert not MachineTest.objects.exists()
    assert not AuditEntry.objects.exists()


def test_the_command_uses_the_redis_of_the_control_plane_that_runs_here(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, url = machine(), settings.REDIS_URL
    settings.REDIS_URL = ""
    monkeypatch.setattr("controlplane.api.management.commands.machines.running_redis", lambda folder: url)
    monkeypatch.setattr(
        "controlplane.api.management.commands.machines.time.sleep",
        lambda _: preflight_ended(one.pk, MachineTested(number=1, test=MachineTest.objects.get().pk, seconds=1.0)),
    )
    call_command("machines", "test", "m1", stdout=io.StringIO())
    assert MachineTest.objects.get().state == "succeeded"
