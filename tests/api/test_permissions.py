"""Who may call what: the whole table."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLResolver, get_resolver
from rest_framework.test import APIClient

from controlplane.api.problems import HOW_TO_BE_LET_IN
from controlplane.jobs.roles import Role
from tests.api.conftest import Clients, problem, refused, user_of
from tests.support.rows import online_agent, submitted_job

READS = (
    "jobs",
    "jobs/{job}",
    "jobs/{job}/processes",
    "jobs/{job}/metrics?metric=loss",
    "jobs/{job}/measurements",
    "jobs/{job}/decisions",
    "jobs/{job}/flags",
    "jobs/{job}/events",
    "jobs/{job}/logs",
    "jobs/{job}/logs/text",
    "jobs/{job}/placement",
    "jobs/{job}/alternatives",
    "jobs/{job}/autopilot",
    "jobs/{job}/policy",
    "jobs/{job}/requests",
    "jobs/{job}/token",
    "jobs/{job}/figures/batch-size",
    "jobs/{job}/trace",
    "jobs/{job}/report",
    "comparisons/learning?jobs={job},{other}",
    "jobs/{job}/model",
    "jobs/{job}/notes",
    "jobs/{job}/tags",
    "views",
    "agents",
    "agents/{agent}",
    "agents/{agent}/drain",
    "agents/{agent}/windows",
    "agents/{agent}/tests",
    "agents/enrolment-tokens",
    "agents/{agent}/figures/batch-size",
    "workers",
    "servers",
    "policies",
    "workloads",
    "tokens",
    "schema",
    "docs",
    "sessions",
    "scenarios",
    "simulations",
    "simulations/{simulation}",
    "simulations/{simulation}/figures/batch-size",
    "alerts",
    "alerts/news",
    "alerts/rules",
    "alerts/rules/1",
    "alerts/document",
    "alerts/targets",
    "alerts/silences",
    "alerts/deliveries",
    "queue",
    "quotas",
    "teams",
    "teams/{team}",
)
ADMINS_READ = ("audit", "users")
WRITES = {
    "POST jobs": Role.OPERATOR,
    "POST jobs/{job}/notes": Role.OPERATOR,
    "DELETE jobs/{job}/notes/9": Role.OPERATOR,
    "PUT jobs/{job}/tags": Role.OPERATOR,
    "POST views": Role.VIEWER,
    "DELETE views/1": Role.VIEWER,
    "POST jobs/check": Role.OPERATOR,
    "PATCH jobs/{job}": Role.OPERATOR,
    "POST jobs/{job}/token": Role.OPERATOR,
    "POST jobs/{job}/actions/finish": Role.OPERATOR,
    "POST jobs/{job}/lease": Role.OPERATOR,
    "DELETE jobs/{job}/token": Role.OPERATOR,
    "POST jobs/{job}/actions/stop": Role.OPERATOR,
    "POST jobs/{job}/actions/pause": Role.OPERATOR,
    "POST jobs/{job}/actions/resume": Role.OPERATOR,
    "POST jobs/{job}/actions/promote": Role.OPERATOR,
    "POST jobs/{job}/workers/0/actions/exclude": Role.OPERATOR,
    "POST jobs/{job}/workers/0/actions/include": Role.OPERATOR,
    "POST jobs/{job}/workers/0/actions/drain": Role.OPERATOR,
    "POST jobs/{job}/servers/actions/add": Role.OPERATOR,
    "POST jobs/{job}/servers/0/actions/drain": Role.OPERATOR,
    "POST jobs/{job}/flags/nothere/actions/acknowledge": Role.OPERATOR,
    "POST jobs/{job}/flags/nothere/actions/mute": Role.OPERATOR,
    "PATCH jobs/{job}/policy": Role.OPERATOR,
    "PATCH jobs/{job}/autopilot": Role.OPERATOR,
    "POST simulations": Role.OPERATOR,
    "POST simulations/{simulation}/actions/cancel": Role.OPERATOR,
    "POST agents/enrolment-tokens": Role.ADMIN,
    "DELETE agents/enrolment-tokens/1": Role.ADMIN,
    "DELETE agents/{agent}": Role.ADMIN,
    "POST agents/{agent}/actions/rotate": Role.OPERATOR,
    "POST agents/{agent}/actions/cordon": Role.OPERATOR,
    "POST agents/{agent}/actions/uncordon": Role.OPERATOR,
    "POST agents/{agent}/actions/drain": Role.OPERATOR,
    "POST agents/{agent}/actions/test": Role.OPERATOR,
    "POST alerts/silences": Role.OPERATOR,
    "DELETE alerts/silences/1": Role.OPERATOR,
    "POST alerts/deliveries/1/actions/resend": Role.OPERATOR,
    "POST alerts/rules": Role.ADMIN,
    "PUT alerts/rules/1": Role.ADMIN,
    "DELETE alerts/rules/1": Role.ADMIN,
    "PUT alerts/document": Role.ADMIN,
    "POST alerts/targets": Role.ADMIN,
    "PUT alerts/targets/1": Role.ADMIN,
    "DELETE alerts/targets/1": Role.ADMIN,
    "POST alerts/targets/1/actions/test": Role.ADMIN,
    "POST jobs/{job}/actions/move": Role.OPERATOR,
    "PUT agents/{agent}/labels": Role.ADMIN,
    "POST agents/{agent}/windows": Role.OPERATOR,
    "DELETE agents/{agent}/windows/9": Role.OPERATOR,
    "PUT jobs/{job}/owner": Role.ADMIN,
    "PUT simulations/{simulation}/owner": Role.ADMIN,
    "PUT agents/{agent}/owner": Role.ADMIN,
    "PUT quotas/users/ada": Role.ADMIN,
    "PUT quotas/teams/nothere": Role.ADMIN,
    "PUT quotas/default": Role.ADMIN,
    "POST teams": Role.ADMIN,
    "POST users/ada/actions/disable": Role.ADMIN,
    "POST users/ada/actions/enable": Role.ADMIN,
    "POST tokens": Role.VIEWER,
    "DELETE tokens/nothere": Role.VIEWER,
    "DELETE sessions/nothere": Role.VIEWER,
}
IN_TEAMS = {
    "PATCH teams/{team}",
    "DELETE teams/{team}",
    "PUT teams/{team}/members/ada",
    "DELETE teams/{team}/members/ada",
}
"""For admins of the team or of the installation: ``test_teams`` has their rules."""

OPEN = {"", "me", "agents/enrol"}
"""For everyone; ``me`` for everyone who is someone."""

CHALLENGE = 'Bearer realm="paceline"'


@pytest.fixture
def there(db: None) -> dict[str, int]:
    ada = User.objects.create_user("ada")
    return {
        "job": submitted_job(ada).pk,
        "other": submitted_job(ada).pk,
        "agent": online_agent("m1").pk,
        "simulation": 1,
        "team": 1,
    }


def call(client: APIClient, method: str, path: str, there: dict[str, int]) -> Any:
    return client.generic(method, f"/api/v1/{path.format(**there)}", "{}", content_type="application/json")


@pytest.mark.parametrize("path", READS)
def test_reading_takes_a_viewer(path: str, client_of: Clients, anybody: APIClient, there: dict[str, int]) -> None:
    stranger = call(anybody, "GET", path, there)
    assert (refused(stranger)["status"], stranger["WWW-Authenticate"]) == (401, CHALLENGE)
    sentence = "this requires the role viewer; your role is none. An admin can add you to that group"
    assert refused(call(client_of(None), "GET", path, there)) == problem(403, sentence)
    assert call(client_of(Role.VIEWER), "GET", path, there).status_code in {200, 404}


@pytest.mark.parametrize("path", ADMINS_READ)
def test_reading_what_concerns_all_takes_an_admin(path: str, client_of: Clients, anybody: APIClient) -> None:
    assert refused(call(anybody, "GET", path, {}))["status"] == 401
    found = [call(client_of(role), "GET", path, {}).status_code for role in Role]
    assert found == [403, 403, 200]


@pytest.mark.parametrize(("operation", "needed"), WRITES.items())
def test_writing_takes_the_role_that_is_named(
    operation: str, needed: Role, client_of: Clients, anybody: APIClient, there: dict[str, int], redis_url: str
) -> None:
    method, path = operation.split()
    assert refused(call(anybody, method, path, there))["status"] == 401
    for role in Role:
        reply = call(client_of(role), method, path, there)
        enough = list(Role).index(role) >= list(Role).index(needed)
        assert (reply.status_code != 403) == enough, (role, reply.content)
        if not enough:
            sentence = f"this requires the role {needed}; your role is {role}. An admin can add you to that group"
            assert refused(reply) == problem(403, sentence)


def paths_below(resolver: URLResolver, above: str = "") -> Iterator[str]:
    """Every path of the site, as it is written in its room."""
    for entry in resolver.url_patterns:
        path = above + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from paths_below(entry, path)
        else:
            yield path


def test_every_address_of_the_api_is_in_these_tables() -> None:
    known = {path.partition("?")[0] for path in (*READS, *ADMINS_READ)} | OPEN
    known |= {name.split()[1] for name in {*WRITES, *IN_TEAMS}}
    patterns = {
        path.removeprefix("api/v1/").replace("<int:pk>", "{pk}")
        for path in paths_below(get_resolver())
        if path.startswith("api/v1/")
    }
    listed = {re.sub(r"\{(job|agent|simulation|team)\}", "{pk}", path) for path in known}
    listed = {
        p.replace("figures/batch-size", "figures/<slug:name>")
        .replace("comparisons/learning", "comparisons/<slug:name>")
        .replace("workers/0", "workers/<int:rank>")
        .replace("servers/0", "servers/<int:index>")
        .replace("flags/nothere", "flags/<str:key>")
        .replace("windows/9", "windows/<int:window>")
        .replace("users/ada", "users/<str:username>")
        .replace("members/ada", "members/<str:username>")
        .replace("quotas/teams/nothere", "quotas/teams/<str:name>")
        .replace("sessions/nothere", "sessions/<slug:number>")
        .replace("tokens/nothere", "tokens/<slug:key>")
        .replace("enrolment-tokens/1", "enrolment-tokens/{pk}")
        .replace("notes/9", "notes/<int:note>")
        .replace("views/1", "views/{pk}")
        .replace("rules/1", "rules/{pk}")
        .replace("targets/1", "targets/{pk}")
        .replace("silences/1", "silences/{pk}")
        .replace("deliveries/1", "deliveries/{pk}")
        for p in listed
    }
    assert patterns == listed


def test_a_session_may_write_only_with_its_csrf_token(there: dict[str, int]) -> None:
    browser = APIClient(enforce_csrf_checks=True, raise_request_exception=False)
    browser.force_login(user_of(Role.ADMIN))
    assert browser.get("/api/v1/jobs").status_code == 200
    reply = browser.post("/api/v1/agents/enrolment-tokens", {}, format="json")
    assert refused(reply) == problem(403, "CSRF Failed: CSRF cookie not set.")


def test_a_token_that_is_not_ours_is_refused(anybody: APIClient) -> None:
    anybody.credentials(HTTP_AUTHORIZATION="Bearer made-up")
    reply = anybody.get("/api/v1/jobs")
    told = problem(401, f"Invalid token. {HOW_TO_BE_LET_IN}")
    assert (refused(reply), reply["WWW-Authenticate"]) == (told, CHALLENGE)


def test_me_reports_who_asks(client_of: Clients, anybody: APIClient) -> None:
    found = [client_of(role).get("/api/v1/me").json() for role in (None, *Role)]
    assert found == [
        {"username": "nobody", "role": None},
        {"username": "viewer", "role": "viewer"},
        {"username": "operator", "role": "operator"},
        {"username": "admin", "role": "admin"},
    ]
    assert refused(anybody.get("/api/v1/me"))["status"] == 401
