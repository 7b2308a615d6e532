"""What a scrape of ``/metrics`` sees of teams: what the user of its token may see, by name; totals of everything."""

import pytest
from rest_framework.test import APIClient

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.people.teams import member_set
from tests.api.test_teams import client, person, vision

__all__ = ["vision"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def scrape(asks: APIClient) -> str:
    return asks.get("/metrics").content.decode()


def test_a_scrape_has_the_jobs_and_machines_that_its_user_may_see(vision: Team) -> None:
    Job.objects.filter(team=vision).update(name="secret-digits", state="running")
    Agent.objects.filter(team=vision).update(name="secret-machine")
    ina = person("ina", "viewer")
    member_set(team=vision, user=ina, role="member", actor="root")
    assert "secret" not in scrape(client(person("eve", "viewer")))
    for user in (ina, person("root", "admin")):
        assert {"secret-digits", "secret-machine"} <= set(scrape(client(user)).split('"'))
    assert 'paceline_jobs{state="running"} 1.0' in scrape(client(person("bea", "viewer")))


def test_an_admins_token_for_metrics_alone_scrapes_all_teams(vision: Team) -> None:
    Agent.objects.filter(team=vision).update(name="secret-machine")
    fields = {"name": "prometheus", "scopes": ["metrics"]}
    token = client(person("root", "admin")).post("/api/v1/tokens", fields, format="json").json()["token"]
    scraper = APIClient(raise_request_exception=False)
    scraper.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
    assert "secret-machine" in scrape(scraper)
    assert scraper.get("/api/v1/jobs").status_code == 403
