"""API tokens: shown once, expiring, revocable."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry
from controlplane.jobs.roles import Role
from controlplane.people.tokens import MOST
from tests.api.conftest import problem, refused

pytestmark = pytest.mark.django_db


def test_a_token_is_shown_once_and_works(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {"lifetime_s": 60}, format="json").json()
    listed = operator.get("/api/v1/tokens").json()["results"]
    fields = {"id", "user", "name", "role", "scopes", "parent", "created_at", "expires_at", "used_at", "used_from"}
    assert (listed[0]["id"], set(listed[0])) == (made["id"], fields)
    anybody.credentials(HTTP_AUTHORIZATION=f"Token {made['token']}")
    assert anybody.get("/api/v1/me").json() == {"username": "operator", "role": "operator"}


def test_a_token_with_a_lower_role_ends_nothing_that_carries_more(
    operator: APIClient, anybody: APIClient, client: Client
) -> None:
    client.force_login(User.objects.get(username="operator"))
    session = operator.get("/api/v1/sessions").json()["results"][0]["id"]
    whole, operators = (
        operator.post("/api/v1/tokens", {"role": role}, format="json").json() for role in (None, "operator")
    )
    other, low = (operator.post("/api/v1/tokens", {"role": "viewer"}, format="json").json() for _ in range(2))
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {low['token']}")
    for path in (f"tokens/{whole['id']}", f"tokens/{operators['id']}", f"sessions/{session}"):
        answer = refused(anybody.delete(f"/api/v1/{path}"))
        assert (answer["status"], "your token has the role viewer" in answer["detail"]) == (403, True)
    assert [anybody.delete(f"/api/v1/tokens/{each['id']}").status_code for each in (other, low)] == [204, 204]


def test_a_token_expires(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {"lifetime_s": 60}, format="json").json()
    AuthToken.objects.filter(token_key=made["id"]).update(expiry=timezone.now() - timedelta(seconds=1))
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {made['token']}")
    assert refused(anybody.get("/api/v1/me"))["status"] == 401


def test_a_revoked_token_ends(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {}, format="json").json()
    assert operator.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {made['token']}")
    assert refused(anybody.get("/api/v1/me"))["status"] == 401
    assert list(AuditEntry.objects.values_list("actor", "action", "subject")) == [
        ("operator", "token-create", f"token {made['id']}"),
        ("operator", "token-revoke", f"token {made['id']}"),
    ]


def test_no_one_but_an_admin_revokes_the_token_of_another(operator: APIClient, admin: APIClient) -> None:
    made, root = (client.post("/api/v1/tokens", {}, format="json").json() for client in (operator, admin))
    reply = operator.delete(f"/api/v1/tokens/{root['id']}")
    assert refused(reply) == problem(404, f"you have no token '{root['id']}'")
    assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    assert AuditEntry.objects.latest("id").detail == {"user": "operator"}


def test_everyone_s_are_listed_to_admins_alone(operator: APIClient, admin: APIClient, viewer: APIClient) -> None:
    for what in ("tokens", "sessions"):
        for client in (viewer, operator):
            assert "requires the role admin" in refused(client.get(f"/api/v1/{what}?of=everyone"))["detail"]
        assert admin.get(f"/api/v1/{what}?of=everyone").status_code == 200
    assert {row["user"] for row in admin.get("/api/v1/tokens?of=everyone").json()["results"]} == set(Role)
    assert {row["user"] for row in operator.get("/api/v1/tokens").json()["results"]} == {"operator"}


def test_a_token_is_named_and_carries_a_lower_role(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {"name": "nightly", "role": "viewer"}, format="json").json()
    assert (made["name"], made["role"], made["used_at"]) == ("nightly", "viewer", None)
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {made['token']}")
    assert anybody.get("/api/v1/me").json() == {"username": "operator", "role": "viewer"}
    assert "your role is viewer" in refused(anybody.post("/api/v1/jobs", {}, format="json"))["detail"]
    (row,) = (row for row in operator.get("/api/v1/tokens").json()["results"] if row["id"] == made["id"])
    assert (row["used_from"], row["used_at"] is None) == ("127.0.0.1", False)


def test_a_token_made_with_a_token_expires_with_it(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {"lifetime_s": 60}, format="json").json()
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {made['token']}")
    child = anybody.post("/api/v1/tokens", {"lifetime_s": 86_400}, format="json").json()
    assert (child["expires_at"], child["parent"]) == (made["expires_at"], made["id"])
    assert operator.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    anybody.credentials(HTTP_AUTHORIZATION=f"Bearer {child['token']}")
    assert refused(anybody.get("/api/v1/me"))["status"] == 401


def test_a_role_above_one_s_own_is_refused(operator: APIClient) -> None:
    reply = operator.post("/api/v1/tokens", {"role": "admin"}, format="json")
    assert refused(reply) == problem(409, "the role admin is above the role of operator here, operator")


def test_tokens_of_one_user_are_bounded(viewer: APIClient) -> None:
    made = [viewer.post("/api/v1/tokens", {}, format="json").status_code for _ in range(MOST + 5)]
    assert (made.count(201), made[-1]) == (MOST - 1, 409)


def test_a_session_is_listed_and_ended(admin: APIClient, viewer: APIClient) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="viewer"))
    (row,) = viewer.get("/api/v1/sessions").json()["results"]
    assert refused(viewer.delete("/api/v1/sessions/nothere"))["status"] == 404
    assert browser.get("/api/v1/me").status_code == 200
    assert admin.delete(f"/api/v1/sessions/{row['id']}").status_code == 204
    assert browser.get("/api/v1/me").status_code == 401


def test_a_lifetime_has_a_limit(operator: APIClient) -> None:
    found = refused(operator.post("/api/v1/tokens", {"lifetime_s": 10**9}, format="json"))
    assert (found["field"], found["found"], found["expected"]) == (
        "lifetime_s",
        10**9,
        "Ensure this value is less than or equal to 31622400.",
    )
