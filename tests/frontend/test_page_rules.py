"""Pages by role and team, made from the resolver: a new address without a rule fails here."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, reverse

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.people.models import Team
from controlplane.telemetry.models import Simulation
from controlplane.telemetry.simulations import simulation_submit
from frontend.urls import urlpatterns
from tests.api.test_teams import person, vision

__all__ = ["vision"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

ROLES: Final = ("stranger", "nobody", "viewer", "operator", "admin")
"""Upwards; a stranger has not signed in, no one is a user without a role."""

LOWEST: Final = {
    **dict.fromkeys(("login", "login-once", "oidc-begin", "oidc-return", "logout"), "stranger"),
    **dict.fromkeys(("overview", "overview-live", "freshness-live", "search", "glossary", "comparison"), "viewer"),
    **dict.fromkeys(("jobs", "parameters", "queue", "queue-live", "waiting", "alerts", "alerts-live"), "viewer"),
    **dict.fromkeys(("job", "job-live", "job-clock", "job-decisions-export", "audit", "audit-export"), "viewer"),
    **dict.fromkeys(("teams", "teams-live", "team", "team-live", "system", "system-live"), "viewer"),
    **dict.fromkeys(("machines", "machines-live", "machine", "machine-live"), "viewer"),
    **dict.fromkeys(("simulations", "simulation", "simulation-job"), "viewer"),
    **dict.fromkeys(("account", "account-live", "account-token", "view-save", "view-delete"), "viewer"),
    **dict.fromkeys(("submit", "submit-look", "job-token", "job-tags", "job-note-add", "job-note-delete"), "operator"),
    **dict.fromkeys(("machine-window", "machine-drain"), "operator"),
    **dict.fromkeys(("machine-labels", "enrolment"), "admin"),
}
"""Who may at least use each address, of what belongs to no one in particular."""

NAMED: Final = {pattern.name: pattern for pattern in urlpatterns if isinstance(pattern, URLPattern) and pattern.name}
OWNED: Final = [
    name
    for name, pattern in NAMED.items()
    if pattern.pattern.converters.keys() & {"job_id", "agent_id"} or name in {"simulation", "team", "team-live"}
] + ["job-decisions-export"]
"""Pages of what a team owns, and of the team."""


def test_every_page_has_a_rule() -> None:
    assert NAMED.keys() == LOWEST.keys()
    assert [str(each.pattern) for each in urlpatterns if isinstance(each, URLPattern) and not each.name] == [
        "favicon.ico"
    ]


def test_each_page_is_for_its_role_and_those_above(vision: Team) -> None:
    row = simulation_submit(scenario="demo", policies=["bsp"], seed=1, user=User.objects.get(username="bob"))
    numbers = {
        "job_id": Job.objects.get(name="public").pk,
        "agent_id": Agent.objects.get(team=None).pk,
        "simulation": row.pk,
        "team": vision.pk,
    }
    clients = {role: browser(role) for role in ROLES}
    found = {}
    for name in NAMED.keys() - {"logout"}:
        replies = {role: clients[role].post(address(name, numbers)) for role in ROLES}
        let_in = [role for role, reply in replies.items() if not is_denied(reply)]
        assert let_in == list(ROLES[len(ROLES) - len(let_in) :]), (name, let_in)
        found[name] = let_in[0]
    lowest = {name: role for name, role in LOWEST.items() if name != "logout"}
    assert found == lowest


@pytest.mark.parametrize("name", OWNED)
def test_pages_of_another_teams_property_do_not_exist(name: str, vision: Team) -> None:
    numbers = {
        "job_id": Job.objects.get(team=vision).pk,
        "agent_id": Agent.objects.get(team=vision).pk,
        "simulation": Simulation.objects.get(team=vision).pk,
        "team": vision.pk,
    }
    there, theirs = browser("admin").post(address(name, numbers)), browser("operator").post(address(name, numbers))
    assert (theirs.status_code, is_denied(there)) == (404, False)


def browser(role: str) -> Client:
    found = Client(raise_request_exception=False)
    if role != "stranger":
        found.force_login(person(f"some-{role}", "" if role == "nobody" else role))
    return found


def is_denied(reply: HttpResponse) -> bool:
    return reply.status_code == 403 or (reply.status_code == 302 and reply.headers["Location"].startswith("/login/?"))


def address(name: str, numbers: Mapping[str, int]) -> str:
    pattern = NAMED[name].pattern
    fields: dict[str, Any] = {"token": "x", "form": "csv", "note_id": 9, "pk": 9} | dict(numbers)
    fields["pk"] = numbers["simulation"] if name == "simulation" else numbers["team"] if name.startswith("team") else 9
    wanted = pattern.converters.keys() | getattr(pattern.regex, "groupindex", {}).keys()
    return reverse(name, kwargs={field: fields[field] for field in wanted})
