"""API tokens: shown once, expiring, revocable."""

from datetime import timedelta

import pytest
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from controlplane.jobs.models import AuditEntry
from tests.api.conftest import problem, refused

pytestmark = pytest.mark.django_db


def test_a_token_is_shown_once_and_works(operator: APIClient, anybody: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {"lifetime_s": 60}, format="json").json()
    listed = operator.get("/api/v1/tokens").json()["results"]
    assert (listed[0]["id"], set(listed[0])) == (made["id"], {"id", "created_at", "expires_at"})
    anybody.credentials(HTTP_AUTHORIZATION=f"Token {made['token']}")
    assert anybody.get("/api/v1/me").json() == {"username": "operator", "role": "operator"}


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


def test_nobody_revokes_the_token_of_another(operator: APIClient, admin: APIClient) -> None:
    made = operator.post("/api/v1/tokens", {}, format="json").json()
    reply = admin.delete(f"/api/v1/tokens/{made['id']}")
    assert refused(reply) == problem(404, f"you have no token '{made['id']}'")
    assert made["id"] not in [row["id"] for row in admin.get("/api/v1/tokens").json()["results"]]


def test_a_lifetime_has_a_limit(operator: APIClient) -> None:
    found = refused(operator.post("/api/v1/tokens", {"lifetime_s": 10**9}, format="json"))
    assert (found["field"], found["found"], found["expected"]) == (
        "lifetime_s",
        10**9,
        "Ensure this value is less than or equal to 31622400.",
    )
