"""Requests of one user are limited by role, by all web processes together; others are not affected."""

from typing import Any

import pytest
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st
from rest_framework.test import APIClient
from structlog.testing import capture_logs

from controlplane.api import rates
from controlplane.api.rates import WINDOW_S, over
from controlplane.jobs.roles import Role
from tests.api.conftest import Clients, refused, user_of

MANY = {"viewer": (3, 1), "operator": (5, 2), "admin": (8, 4)}


@pytest.fixture(autouse=True)
def _few(settings: Any, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.RATE_LIMITS = MANY
    monkeypatch.setattr(rates, "_away_until", 0.0)
    monkeypatch.setattr(rates.time, "time", lambda: 1_000_000 * 60 + 30.0)


@pytest.mark.django_db
@pytest.mark.parametrize("role", list(Role))
def test_a_user_reads_as_often_as_the_role_may(role: Role, client_of: Clients) -> None:
    client, limit = client_of(role), MANY[role][0]
    assert {client.get("/api/v1/jobs").status_code for _ in range(limit)} == {200}
    reply = client.get("/api/v1/jobs")
    assert (reply.status_code, 1 <= int(reply["Retry-After"]) <= 2 * WINDOW_S) == (429, True)
    assert refused(reply)["detail"].startswith(f"more than {limit} requests in a minute; try again in ")


@pytest.mark.django_db
def test_writing_counts_by_itself_and_others_are_not_affected(client_of: Clients) -> None:
    viewer, operator = client_of(Role.VIEWER), client_of(Role.OPERATOR)
    found = [viewer.delete("/api/v1/tokens/none").status_code for _ in range(3)]
    assert found == [404, 429, 429]
    assert viewer.get("/api/v1/jobs").status_code == 200
    assert operator.delete("/api/v1/tokens/none").status_code == 404


@pytest.mark.django_db
def test_strangers_count_by_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "STRANGERS", (2, 2))
    client = APIClient()
    found = [client.get("/api/v1/", REMOTE_ADDR="192.0.2.1").status_code for _ in range(3)]
    assert found == [200, 200, 429]
    assert client.get("/api/v1/", REMOTE_ADDR="192.0.2.2").status_code == 200


@pytest.mark.django_db
def test_pages_are_limited_too(client: Client) -> None:
    client.force_login(user_of(Role.VIEWER))
    found = [client.get("/account/live/").status_code for _ in range(3 * rates.PAGES + 1)]
    assert (set(found[:-1]), found[-1]) == ({200}, 429)
    assert b"more than 12 requests in a minute" in client.get("/account/live/").content


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "credential", "status"),
    [("/api/v1/jobs", "Bearer guessed", 401), ("/api/v1/nothere", "", 404), ("/nothere/", "", 404)],
)
def test_refused_requests_count_by_network(
    path: str, credential: str, status: int, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "REFUSED", 2)
    headers = {"HTTP_AUTHORIZATION": credential} if credential else {}
    replies = [client.get(path, REMOTE_ADDR="192.0.2.1", **headers) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [status, status, 429]
    assert 1 <= int(replies[-1]["Retry-After"]) <= 2 * WINDOW_S
    assert b"more than 2 refused requests in a minute; try again in" in replies[-1].content
    assert client.get(path, REMOTE_ADDR="192.0.2.2", **headers).status_code == status


@pytest.mark.django_db
def test_what_is_accepted_passes_whatever_others_at_its_address_are_refused(
    client_of: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "REFUSED", 1)
    stranger, viewer, operator = APIClient(), client_of(Role.VIEWER), client_of(Role.OPERATOR)
    assert [stranger.get("/api/v1/jobs").status_code for _ in range(2)] == [401, 429]
    assert viewer.get("/api/v1/jobs").status_code == 200
    assert operator.get("/api/v1/jobs/7").status_code == 404  # counts by user, as every request that a role permits
    assert viewer.post("/api/v1/jobs", {}, format="json").status_code == 429  # not permitted: by network


@pytest.mark.django_db
def test_without_redis_nothing_is_counted_no_one_waits_and_the_log_reports_it_once(
    client_of: Clients, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    client = client_of(Role.VIEWER)
    with capture_logs() as logs:
        for _ in range(6):
            monkeypatch.setattr(rates, "_away_until", 0.0)
            assert client.get("/api/v1/tokens").status_code == 200
        assert rates._away_until > 0
        settings.REDIS_URL = answering
        monkeypatch.setattr(rates, "_away_until", 0.0)
        client.get("/api/v1/tokens")
    assert [entry["event"] for entry in logs if "limited" in entry["event"]] == [
        "requests are not limited while Redis does not answer",
        "requests are limited again",
    ]


@pytest.mark.django_db
def test_limits_can_be_switched_off(client_of: Clients, settings: Any) -> None:
    settings.RATE_LIMITS = None
    client = client_of(Role.VIEWER)
    assert {client.get("/api/v1/jobs").status_code for _ in range(6)} == {200}


counts = st.integers(0, 10_000)


@example(before=0, count=3, into=60.0 - 1e-9, limit=2)
@given(before=counts, count=st.integers(1, 10_000), into=st.floats(0, 59.9), limit=st.integers(1, 5_000))
def test_a_client_that_waits_for_retry_after_is_accepted(before: int, count: int, into: float, limit: int) -> None:
    found = over(before, count, into, limit)
    if found is None:
        return
    later = into + found[1]
    if later < WINDOW_S:
        assert over(before, count + 1, later, limit) is None
    elif later < 2 * WINDOW_S:
        assert over(count, 1, later - WINDOW_S, limit) is None
    else:
        assert found[1] <= 2 * WINDOW_S + 2
