"""A database that is busy for a moment is no fault of ours: 503, and when to come back."""

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, connection
from django.test import Client
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
def test_what_passes_by_itself_is_told_from_what_does_not(error: Exception | None, busy: bool) -> None:
    assert is_busy(error) is busy


@pytest.fixture
def somebody_writes(transactional_db: None, roles: None) -> Iterator[None]:
    """Another process holds the database's only write lock, for longer than we wait."""
    if connection.vendor != "sqlite":
        pytest.skip("SQLite alone has one lock for all")
    User.objects.create_superuser("ada", password="lovelace")
    path = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 20000")


def test_rest_answers_503_while_the_database_is_locked(somebody_writes: None) -> None:
    client = APIClient(raise_request_exception=False)
    client.force_authenticate(User.objects.get(username="ada"))
    reply = client.post("/api/v1/jobs", SPEC, format="json")
    told = refused(reply)
    assert (reply.status_code, reply["Retry-After"], reply["Content-Type"]) == (503, "2", "application/problem+json")
    assert told["detail"].startswith("the database is busy (database is locked), so nothing was changed; try again")


def test_a_page_answers_503_while_the_database_is_locked(somebody_writes: None) -> None:
    client = Client(raise_request_exception=False)
    reply = client.post("/login/", {"username": "ada", "password": "lovelace"})
    assert (reply.status_code, reply["Retry-After"]) == (503, "2")
    assert "The database is busy (database is locked)" in reply.content.decode()


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
