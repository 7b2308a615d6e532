"""Simulations of teams: who owns them, who sees them and the jobs of their runs, and whose quota they count for."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.people.quotas import quota_set, quota_usage
from controlplane.people.teams import TeamRefused, member_set, owner_set, team_create, team_delete
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_give, simulation_run, simulation_submit
from tests.api.conftest import refused
from tests.api.test_teams import client, person
from tests.frontend import factories

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

DEMO = {"scenario": "demo", "policies": ["bsp"]}


@pytest.fixture
def vision() -> Team:
    """A team of ina, its operator, and max, a member."""
    team = team_create(name="vision", actor="root")
    for name, role in (("ina", "operator"), ("max", "member")):
        member_set(team=team, user=person(name, "viewer"), role=role, actor="root")
    return team


def user(name: str) -> User:
    found = User.objects.filter(username=name).first()
    return found or person(name)


def test_a_simulation_belongs_to_the_team_of_who_starts_it(vision: Team) -> None:
    ina, max_, eve = client(user("ina")), client(user("max")), client(user("eve"))
    row = ina.post("/api/v1/simulations", DEMO, format="json").json()
    assert row["team"] == "vision"
    path = f"/api/v1/simulations/{row['id']}"
    assert (max_.get(path).status_code, eve.get(path).status_code) == (200, 404)
    assert (max_.post(f"{path}/actions/cancel").status_code, eve.post(f"{path}/actions/cancel").status_code) == (
        403,
        404,
    )
    assert ina.post(f"{path}/actions/cancel").status_code == 202
    eves = eve.post("/api/v1/simulations", DEMO, format="json").json()
    assert eves["team"] is None
    found = {
        name: [each["id"] for each in asks.get("/api/v1/simulations").json()["results"]]
        for name, asks in (("max", max_), ("eve", eve))
    }
    assert found == {"max": [eves["id"], row["id"]], "eve": [eves["id"]]}
    of_team = max_.get("/api/v1/simulations?team=vision").json()["results"]
    assert [each["id"] for each in of_team] == [row["id"]]


def test_starting_one_for_a_team_requires_its_role(vision: Team) -> None:
    told = refused(client(user("max")).post("/api/v1/simulations", DEMO, format="json"))
    assert (told["status"], "operator" in told["detail"]) == (403, True)
    told = refused(client(user("eve")).post("/api/v1/simulations?team=vision", DEMO, format="json"))
    assert told["status"] == 403
    assert told["detail"].startswith("user 'eve' is in no team 'vision' (teams: none): its admins add members")


def test_one_on_the_machines_of_a_teams_job_is_that_teams(vision: Team) -> None:
    job = factories.played_job(user=user("ina"))
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    factories.make_entry(job, "0-1", kind="job-submitted")
    owner_set(row=job, team=vision, actor="root")
    other = team_create(name="speech", actor="root")
    member_set(team=other, user=user("ina"), role="operator", actor="root")
    ina, asked = client(user("ina")), {"scenario": f"job-{job.pk}", "policies": ["lb-bsp-cpu"]}
    fault = refused(ina.post("/api/v1/simulations?team=speech", asked, format="json"))
    assert (fault["status"], fault["field"], fault["found"]) == (400, "team", "speech")
    assert ina.post("/api/v1/simulations", asked, format="json").json()["team"] == "vision"
    assert refused(client(user("max")).post("/api/v1/simulations", asked, format="json"))["status"] == 403


def test_the_jobs_of_its_runs_are_owned_with_it(vision: Team) -> None:
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=user("ina"), team=vision)
    simulation_run(row.pk)
    run = Job.objects.get(simulation=row)
    assert run.team == vision
    eve, browser = user("eve"), Client()
    browser.force_login(eve)
    for path in (f"/simulations/{row.pk}/", f"/jobs/{run.pk}/"):
        assert browser.get(path).status_code == 404
    assert client(eve).get(f"/api/v1/simulations/{row.pk}/figures/load").status_code == 404
    with pytest.raises(TeamRefused, match=f"is a run of simulation {row.pk}: give that to the team"):
        owner_set(row=run, team=None, actor="root")
    root = client(person("root", "admin"))
    assert refused(root.put(f"/api/v1/jobs/{run.pk}/owner", {"team": None}, format="json"))["status"] == 409
    assert root.put(f"/api/v1/simulations/{row.pk}/owner", {"team": None}, format="json").status_code == 200
    assert browser.get(f"/jobs/{run.pk}/").status_code == 200


def test_one_that_is_given_away_while_it_runs_takes_its_runs_along(vision: Team) -> None:
    row = simulation_submit(scenario="demo", policies=["bsp", "ssp"], seed=1, user=user("ina"))
    simulation_give(row=row, team=vision, actor="root")
    simulation_run(row.pk)
    assert {run.team for run in Job.objects.filter(simulation=row)} == {vision}


def test_a_search_and_the_list_name_no_simulation_of_another_team(vision: Team) -> None:
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=user("ina"), team=vision)
    pages = {}
    for name in ("max", "eve"):
        browser = Client()
        browser.force_login(user(name))
        pages[name] = [
            f"/simulations/{row.pk}/" in browser.get(path).content.decode()
            for path in ("/simulations/", "/search/?q=demo")
        ]
    assert pages == {"max": [True, True], "eve": [False, False]}


def test_a_team_that_owns_a_simulation_is_not_deleted(vision: Team) -> None:
    simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=user("ina"), team=vision)
    with pytest.raises(TeamRefused, match="owns 1 simulation,"):
        team_delete(team=vision, actor="root")


def test_they_count_for_the_quota_of_the_team(vision: Team) -> None:
    quota_set(team=vision, actor="root", simulations=1)
    ina = client(user("ina"))
    assert ina.post("/api/v1/simulations", DEMO, format="json").status_code == 202
    told = refused(ina.post("/api/v1/simulations", DEMO, format="json"))
    assert (told["status"], told["field"]) == (409, "quota.simulations")
    assert told["detail"].startswith("the quota of team vision is 1 unfinished simulations")
    assert quota_usage(team=vision).used["simulations"] == Simulation.objects.count() == 1
