"""A database that is busy for a moment is no fault of Paceline's: 503, and when to come back."""

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, connection
from django.test import AsyncClient, Client
from rest_framework.test import APIClient

from controlplane.api.busy import is_busy
from tests.api.conftest import refused
from tests.support.rows import SPEC


def caused(error: DatabaseError, by: Exception) -> DatabaseError:
    """As Django raises it, in place of the driver's."""
    error.__cause__ = by
    return error


LOCKED = caused(OperationalError("database is locked"), sqlite3.OperationalError("database is locked"))


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (LOCKED, True),
        (OperationalError("database table is locked: jobs_job"), True),
        (caused(OperationalError("canceling"), psycopg.errors.LockNotAvailable("canceling")), True),
        (caused(OperationalError("canceling"), psycopg.errors.QueryCanceled("canceling")), True),
        (caused(OperationalError("deadlock detected"), psycopg.errors.DeadlockDetected("deadlock detected")), True),
        (OperationalError("connection failed: FATAL:  sorry, too many clients already"), True),
        (OperationalError("FATAL:  remaining connection slots are reserved for roles"), True),
        (OperationalError("no such table: jobs_job"), False),
        (OperationalError("attempt to write a readonly database"), False),
        (caused(DatabaseError("syntax"), psycopg.errors.SyntaxError("syntax")), False),
        (ValueError("this drawer is locked"), False),
        (None, False),
    ],
)
def test_transient_database_errors_are_distinguished_from_lasting_ones(error: Exception | None, busy: bool) -> None:
    assert is_busy(error) is busy


@pytest.fixture
def somebody_writes(transactional_db: None, roles: None) -> Iterator[None]:
    """Another process holds a lock for longer than we wait: SQLite's only one, PostgreSQL's of two tables."""
    User.objects.create_superuser("ada", password="lovelace")
    sqlite = connection.vendor == "sqlite"
    other = connection.copy()
    with connection.cursor() as ours, other.cursor() as theirs:
        ours.execute("PRAGMA busy_timeout = 10" if sqlite else "SET lock_timeout = 10")
        theirs.execute("BEGIN IMMEDIATE" if sqlite else "BEGIN")
        if not sqlite:
            theirs.execute("LOCK TABLE jobs_job, auth_user IN SHARE ROW EXCLUSIVE MODE")
        yield
        theirs.execute("ROLLBACK")
    other.close()
    connection.close()  # the next one waits as long as usual


FOUND = r"the database is busy \((database is locked|canceling statement due to lock timeout)\), so nothing was changed"


def test_rest_answers_503_while_the_database_is_locked(somebody_writes: None) -> None:
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(User.objects.get(username="ada"))
    reply = client.post("/api/v1/jobs", SPEC, format="json")
    told = refused(reply)
    assert (reply.status_code, reply["Retry-After"], reply["Content-Type"]) == (503, "2", "application/problem+json")
    assert re.match(FOUND, told["detail"])


def test_a_page_answers_503_while_the_database_is_locked(somebody_writes: None) -> None:
    client = Client(raise_request_exception=False)
    reply = client.post("/login/", {"username": "ada", "password": "lovelace"})
    assert (reply.status_code, reply["Retry-After"]) == (503, "2")
    assert re.search(FOUND.replace("the", "The", 1), reply.content.decode())


@pytest.mark.django_db
@pytest.mark.parametrize(("address", "kind"), [("/", "text/html"), ("/healthz", "text/html"), ("/api/v1/nothing", "")])
def test_an_error_outside_of_views_is_answered_alike(address: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a session is saved behind the view."""

    def fail(*_: Any) -> None:
        raise LOCKED

    monkeypatch.setattr("django.contrib.sessions.middleware.SessionMiddleware.process_response", fail)
    reply = Client(raise_request_exception=False).get(address)
    assert (reply.status_code, reply["Retry-After"]) == (503, "2")
    assert reply["Content-Type"].startswith(kind or "application/problem+json")


@pytest.mark.django_db
async def test_an_asynchronous_server_answers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the web process is: errors outside of views are answered in another thread."""

    def fail(*_: Any) -> None:
        raise LOCKED

    monkeypatch.setattr("django.contrib.sessions.middleware.SessionMiddleware.process_response", fail)
    reply = await AsyncClient(raise_request_exception=False).get("/healthz")
    assert (reply.status_code, reply["Retry-After"]) == (503, "2")
