"""Clients of each role, and problem documents to compare with."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from knox.models import AuthToken
from rest_framework.test import APIClient

from controlplane.jobs.roles import Role

Clients = Callable[[Role | None], APIClient]

PLAIN = {"Accept-Encoding": "identity"}
"""Schemathesis reads a WSGI application's replies as they are: compressed ones it would take for text."""


def user_of(role: Role | None) -> User:
    user = User.objects.create_user(str(role or "nobody"))
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


@pytest.fixture
def client_of(db: None) -> Clients:
    """A client that shows an API token of a user with the role."""

    def make(role: Role | None) -> APIClient:
        _, token = AuthToken.objects.create(user=user_of(role))
        client = APIClient(raise_request_exception=False)
        client.credentials(HTTP_AUTHORIZATION=f"Bearer {token}")
        return client

    return make


@pytest.fixture
def viewer(client_of: Clients) -> APIClient:
    return client_of(Role.VIEWER)


@pytest.fixture
def operator(client_of: Clients) -> APIClient:
    return client_of(Role.OPERATOR)


@pytest.fixture
def admin(client_of: Clients) -> APIClient:
    return client_of(Role.ADMIN)


@pytest.fixture
def bearer(db: None) -> dict[str, str]:
    """The header of an admin."""
    _, token = AuthToken.objects.create(user=user_of(Role.ADMIN))
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def anybody(db: None) -> APIClient:
    return APIClient(raise_request_exception=False)


def problem(status: int, detail: str, *errors: tuple[str, object, str]) -> dict[str, Any]:
    """A problem document with these fields at fault."""
    faults = [{"field": field, "found": found, "expected": expected} for field, found, expected in errors]
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if faults:
        body |= {"type": "urn:paceline:problem:fields", "title": "The request has invalid fields"}
        body |= {**faults[0], "errors": faults}
    return body


def refused(reply: Any) -> dict[str, Any]:
    """The body of a refusal, which must be a problem document, without the id of the request that is in its header."""
    assert reply["Content-Type"] == "application/problem+json", reply.content
    body: dict[str, Any] = dict(reply.json())
    assert body.pop("trace_id", "") == reply.headers.get("X-Trace-Id", "")
    assert body["status"] == reply.status_code
    return body
