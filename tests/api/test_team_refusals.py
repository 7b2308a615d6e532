"""What others learn of a team's alerts and machines where they are refused: nothing."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.alerts.models import Alert, Delivery, Rule, Silence, Target
from controlplane.fleet.machine_tests import preflight_request
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.people.teams import member_set
from tests.api.conftest import refused
from tests.api.test_teams import client, person, vision
from tests.support.rows import online_agent

__all__ = ["vision"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def test_silences_and_deliveries_of_another_teams_jobs_do_not_exist(vision: Team) -> None:
    job, now = Job.objects.get(team=vision), timezone.now()
    silence = Silence.objects.create(job=job, until=now + timedelta(hours=1), created_by="ann")
    alert = Alert.objects.create(job=job, stage="firing", since=now, seen_at=now, summary="secret")
    target = Target.objects.create(name="oncall", kind="webhook", sealed=b"")
    delivery = Delivery.objects.create(alert=alert, target=target, notice="firing", message={}, state="failed")
    eve = client(person("eve"))
    assert refused(eve.delete(f"/api/v1/alerts/silences/{silence.pk}"))["status"] == 404
    assert refused(eve.post(f"/api/v1/alerts/deliveries/{delivery.pk}/actions/resend"))["status"] == 404
    silence.refresh_from_db()
    delivery.refresh_from_db()
    assert (silence.until > now, delivery.state) == (True, "failed")
    member = person("member")
    member_set(team=vision, user=member, role="operator", actor="root")
    assert client(member).delete(f"/api/v1/alerts/silences/{silence.pk}").status_code == 204


def test_the_page_offers_no_silence_that_would_be_refused(vision: Team) -> None:
    now = timezone.now()
    alert = Alert.objects.create(stage="firing", since=now, seen_at=now, fired_at=now, summary="Redis is full")
    for user, offered in ((person("eve"), False), (person("root", "admin"), True)):
        browser = Client()
        browser.force_login(user)
        page = browser.get("/alerts/").content.decode()
        assert ("Redis is full" in page, f'id="silence-{alert.pk}"' in page) == (True, offered)


def test_a_refused_test_of_a_machine_names_no_machine_of_another_team(vision: Team, redis_url: str) -> None:
    Agent.objects.all().delete()
    shared = online_agent("shared", tests=True, server_slots=1)
    secret = online_agent("secret-machine", tests=True)
    Agent.objects.filter(pk=secret.pk).update(team=vision)
    preflight_request(agent=Agent.objects.get(pk=secret.pk), actor="ina")
    path = f"/api/v1/agents/{shared.pk}/actions/test"
    says = "agent 'shared' cannot be tested: {}, with a link to it, is being tested"
    found = refused(client(person("eve")).post(path, {}, format="json"))
    assert found["detail"].startswith(says.format("another machine"))
    found = refused(client(person("root", "admin")).post(path, {}, format="json"))
    assert found["detail"].startswith(says.format("agent 'secret-machine'"))


def test_a_refused_test_of_a_machine_names_no_job_of_another_team(vision: Team, redis_url: str) -> None:
    shared, job = online_agent("shared", tests=True), Job.objects.get(team=vision)
    public = Job.objects.get(name="public")
    for index, number in enumerate((job.pk, public.pk)):
        Reservation.objects.create(agent=shared, job_id=number, role="worker", slot=index, index=90 + index)
    path, eve = f"/api/v1/agents/{shared.pk}/actions/test", client(person("eve"))
    found = refused(eve.post(path, {}, format="json"))
    assert found["detail"].startswith(f"agent 'shared' has 2 slots in use (job #{public.pk}), which a test")
    Reservation.objects.filter(agent=shared, job_id=public.pk).delete()
    found = refused(eve.post(path, {}, format="json"))
    assert found["detail"].startswith("agent 'shared' has 1 slot in use, which a test would slow down")


@pytest.mark.parametrize("about", [{"labels": {"user": "ann"}}, {"rule": "stalls"}])
def test_alerts_of_other_teams_are_not_silenced_without_naming_a_job(about: dict[str, Any], vision: Team) -> None:
    Rule.objects.create(name="stalls", kind="stalled")
    path, member = "/api/v1/alerts/silences", person("member")
    member_set(team=vision, user=member, role="operator", actor="root")
    for user in (person("eve"), member):
        problem = refused(client(user).post(path, {**about, "minutes": 60}, format="json"))
        assert (problem["status"], "give the job, or ask an admin" in problem["detail"]) == (403, True)
    public = Job.objects.get(name="public")
    job = Job.objects.get(team=vision)
    assert client(member).post(path, {"job": job.pk, "minutes": 60}, format="json").status_code == 201
    asked = {**about, "job": public.pk, "minutes": 60}
    assert client(User.objects.get(username="eve")).post(path, asked, format="json").status_code == 201
    assert client(person("root", "admin")).post(path, {**about, "minutes": 60}, format="json").status_code == 201
