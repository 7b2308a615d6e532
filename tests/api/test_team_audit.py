"""What the audit log tells of other teams: nothing of their machines, jobs, quotas and members."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.api.machines import label_machine
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.people.models import Team
from controlplane.people.quotas import quota_set
from controlplane.people.teams import member_set, owner_set
from controlplane.runtime.credential_renewal import renew_credentials
from tests.api.test_teams import person, vision
from tests.support.rows import online_agent

__all__ = ["vision"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def subjects(user: User) -> set[str]:
    browser = Client()
    browser.force_login(user)
    return {row["subject"] for row in json.loads(streamed(browser.get("/audit.json")))}


def streamed(reply: Any) -> str:
    return b"".join(reply.streaming_content).decode()


def test_the_audit_log_names_no_machine_of_another_team(vision: Team) -> None:
    machine = Agent.objects.get(name="m1")
    label_machine(agent=machine, labels={"site": "north"}, actor="root")
    label_machine(agent=Agent.objects.get(name="m2"), labels={"site": "north"}, actor="root")
    ina = person("ina", "viewer")
    member_set(team=vision, user=ina, role="member", actor="root")
    quota_set(team=vision, actor="root", jobs=3)
    audit(actor="root", action="agent-rotate", subject=f"agent {machine.pk}")  # as earlier releases named it
    of_team = {"agent m1", "team vision", "quota of team vision"}
    assert subjects(ina) >= {*of_team, "agent m2"}
    assert subjects(person("root", "admin")) >= {*of_team, "agent m2", f"agent {machine.pk}"}
    assert subjects(person("eve")) & {*of_team, f"agent {machine.pk}"} == set()
    assert "agent m2" in subjects(User.objects.get(username="eve"))


def test_a_renewal_is_named_as_all_that_is_done_to_the_machine(vision: Team, settings: Any) -> None:
    settings.CREDENTIAL_LIFETIME = timedelta(days=90)
    machine = online_agent("m8", rotates=True)
    Agent.objects.filter(pk=machine.pk).update(credential_expires_at=timezone.now() + timedelta(days=20))
    Agent.objects.filter(name="m1").update(can_rotate=True, credential_expires_at=timezone.now() + timedelta(days=20))
    assert set(renew_credentials()) == {"m1", "m8"}
    assert "agent m8" in subjects(person("eve"))
    assert "agent m1" not in subjects(User.objects.get(username="eve"))


def test_what_was_done_to_a_machine_that_is_gone_is_for_admins(vision: Team) -> None:
    audit(actor="root", action="agent-labels", subject="agent m1")
    owner_set(row=Agent.objects.get(name="m1"), team=None, actor="root")
    eve = person("eve")
    assert "agent m1" in subjects(eve)
    Agent.objects.filter(name="m1").delete()
    assert "agent m1" not in subjects(eve)
    assert "agent m1" in subjects(person("root", "admin"))


def test_entries_about_alerts_of_a_job_are_for_who_sees_the_job(vision: Team) -> None:
    job = Job.objects.get(team=vision)
    audit(actor="ann", action="alert-silence-end", subject="silence 7", detail={"about": str(job)}, job=job)
    assert "silence 7" not in subjects(person("eve"))
