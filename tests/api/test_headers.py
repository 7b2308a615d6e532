"""What browsers are told to refuse, and requests that name another host."""

import logging
import re

import pytest
from django.conf import settings as django_settings
from django.test import Client

from controlplane.api.headers import FEATURES, POLICY

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/login/", "/", "/healthz", "/nowhere/", "/api/v1/", "/api/v1/jobs", "/admin/"])
def test_every_response_has_the_headers(path: str, client: Client) -> None:
    reply = client.get(path)
    assert reply["Content-Security-Policy"] == POLICY
    assert reply["Cross-Origin-Opener-Policy"] == reply["Cross-Origin-Resource-Policy"] == "same-origin"
    assert {part.removesuffix("=()") for part in reply["Permissions-Policy"].split(", ")} == set(FEATURES)
    assert (reply["X-Content-Type-Options"], reply["X-Frame-Options"]) == ("nosniff", "DENY")


def test_the_policy_allows_nothing_inline() -> None:
    assert not re.search(r"unsafe-(inline|eval)|https?:|\*", POLICY)
    assert POLICY.startswith("default-src 'none'; script-src 'self';")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "a b", "", "[::", "x" * 300, "\x1b[2J"])
@pytest.mark.parametrize("path", ["/", "/api/v1/jobs", "/healthz", "/static/nothere.js"])
def test_another_host_is_refused_without_a_traceback(
    host: str, path: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        reply = client.get(path, HTTP_HOST=host)
    form = "application/problem+json" if path.startswith("/api/") else "text/plain; charset=utf-8"
    assert (reply.status_code, reply["Content-Type"]) == (400, form)
    assert [record for record in caplog.records if record.exc_info or record.levelno > logging.WARNING] == []
    assert "\x1b" not in caplog.text
    assert not (host and host in reply.content.decode())


def test_our_own_hosts_are_served(client: Client) -> None:
    for host in django_settings.ALLOWED_HOSTS:
        assert client.get("/login/", HTTP_HOST=host).status_code == 200


@pytest.mark.parametrize("path", ["/api/v1/schema", "/api/v1/docs"])
def test_the_schema_is_for_those_who_are_known(path: str, client: Client) -> None:
    assert client.get(path).status_code == 401


def test_the_admin_is_for_those_who_are_known(client: Client) -> None:
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/login/?next=/admin/"
