"""Tokens with scopes, over every operation of the document: a role is narrowed, and never widened."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from controlplane.jobs.roles import Role
from controlplane.people.scopes import WRITES, Scope, ScopesRefused, parse
from controlplane.people.tokens import TokenRefused, token_create
from tests.api.conftest import refused
from tests.api.test_permissions import OPEN, call

pytestmark = pytest.mark.django_db

BY_OTHER_KEYS = {("PUT", "jobs/1/model")}


def client_with(*scopes: Scope, role: Role = Role.ADMIN) -> APIClient:
    user = User.objects.create_user(f"user-{User.objects.count()}")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    _, secret = token_create(user=user, name="one", actor="ada", scopes=frozenset(scopes))
    client = APIClient(raise_request_exception=False)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def operations() -> list[tuple[str, str]]:
    paths: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)["paths"]
    found = [
        (method.upper(), re.sub(r"\{\w+\}", "1", path.removeprefix("/api/v1/")))
        for path, methods in paths.items()
        for method in methods
    ]
    return [(method, path) for method, path in found if path not in OPEN and (method, path) not in BY_OTHER_KEYS]


def is_out_of_scope(reply: Any) -> bool:
    return reply.status_code == 403 and "this requires a token with the scope" in reply.json()["detail"]


def test_every_operation_takes_the_scope_of_its_path(redis_url: str, settings: Any) -> None:
    settings.RATE_LIMITS = None  # more refusals than one network may have in a minute
    clients = {scope: client_with(scope) for scope in Scope}
    for method, path in operations():
        part = path.partition("/")[0].partition("?")[0]
        wanted = Scope.READ if method == "GET" else WRITES.get(part)
        for scope, client in clients.items():
            reply = call(client, method, path, {})
            assert is_out_of_scope(reply) == (scope != wanted), (method, path, scope, reply.content[:200])


def test_a_token_without_scopes_is_not_limited(redis_url: str) -> None:
    client = client_with()
    assert not [each for each in operations() if each[0] == "GET" and is_out_of_scope(call(client, *each, {}))]


def test_a_scraper_reads_metrics_alone(redis_url: str) -> None:
    scraper = client_with(Scope.METRICS, role=Role.VIEWER)
    assert scraper.get("/metrics").status_code == 200
    sentence = "this requires a token with the scope read; yours has metrics"
    assert refused(scraper.get("/api/v1/jobs"))["detail"] == sentence
    assert client_with(Scope.READ, role=Role.VIEWER).get("/metrics").status_code == 200
    assert client_with(Scope.JOBS).get("/metrics").status_code == 403


def test_a_scope_is_no_role() -> None:
    client = client_with(Scope.MACHINES, role=Role.VIEWER)
    reply = client.post("/api/v1/agents/enrolment-tokens", {}, format="json")
    assert "this requires the role admin" in refused(reply)["detail"]


def test_scopes_are_reported_and_stored() -> None:
    client = client_with(Scope.CREDENTIALS, Scope.READ)
    made = client.post("/api/v1/tokens", {"name": "narrow", "scopes": ["read"]}, format="json").json()
    assert made["scopes"] == ["read"]
    assert [row["scopes"] for row in client.get("/api/v1/tokens").json()["results"]] == [
        *(["read"], ["read", "credentials:write"]),
    ]


def test_a_token_gives_no_scope_that_it_has_not() -> None:
    client = client_with(Scope.CREDENTIALS, Scope.READ)
    reply = client.post("/api/v1/tokens", {"scopes": ["read", "jobs:write"]}, format="json")
    assert (reply.status_code, refused(reply)["detail"]) == (
        409,
        "the token of this request has not the scope jobs:write",
    )
    inherited = client.post("/api/v1/tokens", {}, format="json").json()
    assert inherited["scopes"] == ["read", "credentials:write"]


def test_an_unknown_scope_is_refused_by_name() -> None:
    reply = client_with().post("/api/v1/tokens", {"scopes": ["root"]}, format="json")
    assert (reply.status_code, refused(reply)["found"]) == (400, "['root']")
    with pytest.raises(ScopesRefused, match="found the scope 'root'"):
        parse(["root"])


def test_a_child_of_a_scoped_token_cannot_be_wider() -> None:
    ada = User.objects.create_user("ada")
    ada.groups.add(Group.objects.get_or_create(name=Role.VIEWER)[0])
    parent, _ = token_create(user=ada, name="parent", actor="ada", scopes=frozenset({Scope.READ}))
    with pytest.raises(TokenRefused):
        token_create(user=ada, name="child", actor="ada", parent=parent, scopes=frozenset({Scope.JOBS}))
