"""Lists of what teams own: filtered by team, and with those actions only that the role in the owning team permits."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from controlplane.alerts.models import Alert
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.people.teams import member_set, owner_set, team_create
from controlplane.telemetry.simulations import simulation_submit
from tests.api.test_teams import client, person
from tests.frontend import factories
from tests.support.rows import online_agent, submitted_job

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


@pytest.fixture
def vision() -> Team:
    """Owns a job, a machine and a simulation; others are everyone's. Of its people only ina operates it."""
    team, bob = team_create(name="vision", actor="root"), person("bob")
    for job, owner in ((submitted_job(bob, name="ours"), team), (submitted_job(bob, name="public"), None)):
        owner_set(row=job, team=owner, actor="root")
    for name, owner in (("m1", team), ("m2", None)):
        owner_set(row=online_agent(name), team=owner, actor="root")
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=bob, team=team)
    member_set(team=team, user=person("ina", "viewer"), role="operator", actor="root")
    member_set(team=team, user=person("max", "operator"), role="member", actor="root")
    person("root", "admin")
    return team


def page(name: str, path: str) -> str:
    browser = Client()
    browser.force_login(User.objects.get(username=name))
    return browser.get(path).content.decode()


PEOPLE = {"ina": {"ours"}, "max": {"public"}, "root": {"ours", "public"}}
"""Who operates what of the two."""


@pytest.mark.parametrize("name", PEOPLE)
def test_the_list_of_machines_offers_what_the_role_in_the_owning_team_permits(name: str, vision: Team) -> None:
    numbers = {"ours": Agent.objects.get(name="m1").pk, "public": Agent.objects.get(name="m2").pk}
    body = page(name, "/workers/")
    assert {which for which, pk in numbers.items() if f'id="cordon-{pk}"' in body} == PEOPLE[name]
    assert 'id="drain-dialog"' in body


@pytest.mark.parametrize("name", PEOPLE)
def test_the_list_of_jobs_stops_what_the_role_in_the_owning_team_permits(name: str, vision: Team) -> None:
    body = page(name, "/jobs/")
    stopped = {job.name for job in Job.objects.all() if f'value="{job.pk}" data-over="no" data-stops="yes"' in body}
    assert stopped == PEOPLE[name]


@pytest.mark.parametrize("name", PEOPLE)
def test_the_page_of_a_machine_offers_its_processes_by_the_teams_of_their_jobs(name: str, vision: Team) -> None:
    machine = Agent.objects.get(name="m2")
    for job in Job.objects.all():
        now = timezone.now()
        place = {"role": "worker", "index": 0, "instance": f"{job.pk}.0.1", "agent": machine}
        job.processes.create(**place, state="ready", state_since=now, started_at=now)
    body = page(name, f"/workers/{machine.pk}/")
    offered = {job.name for job in Job.objects.all() if f'id="job-{job.pk}-drain-w0"' in body}
    assert offered == PEOPLE[name]


@pytest.mark.parametrize("name", PEOPLE)
def test_alerts_are_silenced_by_who_operates_their_job(name: str, vision: Team) -> None:
    rows = {
        job.name: Alert.objects.create(
            job=job, stage="firing", since=timezone.now(), seen_at=timezone.now(), fired_at=timezone.now(), summary="x"
        )
        for job in Job.objects.all()
    }
    body = page(name, "/alerts/")
    assert {which for which, row in rows.items() if f'id="silence-{row.pk}"' in body} == PEOPLE[name]
    asks = client(User.objects.get(username=name))
    replies = {
        job.name: asks.post("/api/v1/alerts/silences", {"job": job.pk, "minutes": 5}, format="json").status_code
        for job in Job.objects.all()
    }
    assert {which for which, status in replies.items() if status == 201} == PEOPLE[name]
    assert set(replies.values()) <= {201, 403}


@pytest.mark.parametrize("path", ["/jobs/", "/jobs/parameters/", "/simulations/"])
def test_lists_are_filtered_by_team_and_name_the_owner(path: str, vision: Team) -> None:
    whole, ours = page("ina", path), page("ina", f"{path}?team=vision")
    assert "<option>vision</option>" in whole
    assert "<option selected>vision</option>" in ours
    if path != "/simulations/":
        assert ("public" in whole, "public" in ours, "ours" in ours) == (True, False, True)
    if path != "/jobs/parameters/":
        assert "Owned by team vision" in ours
    assert "vision" not in page("bob", path)
    assert "Owned by team vision" not in page("ina", f"{path}?team=other")


def test_the_page_of_a_job_a_machine_and_a_simulation_names_the_owner(vision: Team) -> None:
    job, machine = Job.objects.get(name="ours"), Agent.objects.get(name="m1")
    assert "for team vision" in page("ina", f"/jobs/{job.pk}/")
    assert "of team vision" in page("ina", f"/workers/{machine.pk}/")
    assert "for team vision" in page("ina", f"/simulations/{vision.simulations.get().pk}/")


@pytest.mark.parametrize("path", ["/jobs/new/", "/simulations/"])
def test_forms_offer_the_teams_that_the_user_may_submit_for(path: str, vision: Team) -> None:
    assert 'id="team"' in page("ina", path)
    assert "<option>vision</option>" in page("root", path)
    assert ("without one, all users do" if path == "/jobs/new/" else "else none") in page("root", path)
    assert 'id="team"' not in page("max", path)
    assert 'id="team"' not in page("bob", path)


def test_the_check_of_the_form_is_for_the_chosen_team(vision: Team) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="max"))
    spec = factories.spec()
    answer = browser.post("/jobs/new/look/?team=vision", spec, content_type="application/json").json()
    assert (answer["outcome"], "requires its role operator" in answer["finding"]) == ("refused", True)
    assert browser.post("/jobs/new/look/", spec, content_type="application/json").json()["outcome"] != "refused"
