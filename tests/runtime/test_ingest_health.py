"""A database that takes nothing for a while: it is said, nothing is lost, and copying continues by itself."""

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, OperationalError, connection
from django.db.backends.signals import connection_created
from django.db.utils import InternalError
from django.test import Client as Browser

from controlplane.jobs.models import Job
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log, names
from controlplane.runtime.ingest import run_ingest
from controlplane.runtime.ingest_health import WORTH_SHOWING, explained, history, is_out_of_reach
from controlplane.runtime.redis import Client
from tests.runtime.support import SPEC, greeted, report, submit
from tests.telemetry.reports import stored_reports

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job(client: Client, enqueued: list[int]) -> int:
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, row.pk)
    greeted(row.pk)
    for number in range(2, 50):
        log.append_event(row.pk, report(number), client=client)
    return row.pk


def full_disk() -> Callable[[], None]:
    """No page more than there are; as SQLite itself says it. Gives what makes room again."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")  # What earlier tests left free would be taken first.
        cursor.execute("PRAGMA page_count")
        pages = cursor.fetchone()[0]
    _on_each_connection(f"PRAGMA max_page_count = {pages}")
    return lambda: _on_each_connection("PRAGMA max_page_count = 1000000")


def locked_tables() -> Callable[[], None]:
    """Someone else holds the database for longer than anybody waits. Gives what ends that."""
    other = connection.copy()
    other.ensure_connection()
    if connection.vendor == "sqlite":
        other.connection.execute("BEGIN IMMEDIATE")
        _on_each_connection("PRAGMA busy_timeout = 20")
    else:
        other.connection.autocommit = False
        other.connection.execute("LOCK TABLE telemetry_rawevent")
        _on_each_connection("SET lock_timeout = 20")
    return other.close


def lost_connections() -> Callable[[], None]:
    """The server ends our connection under our hands, as when it is restarted."""
    connection.ensure_connection()
    pid = connection.connection.info.backend_pid
    other = connection.copy()
    with closing(other), other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
    return lambda: None


statements: list[str] = []


def _on_each_connection(statement: str) -> None:
    """Now and whenever a connection is made anew, since ingest gives up a broken one."""
    statements[:] = [statement]
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(autouse=True)
def each_connection() -> Iterator[None]:
    def prepare(*, connection: Any, **_: Any) -> None:
        for statement in statements:
            connection.connection.execute(statement)

    connection_created.connect(prepare)
    yield
    connection_created.disconnect(prepare)
    statements.clear()
    connection.close()


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (full_disk, "its disk is full (database or disk is full): free disk space."),
        (locked_tables, "another process has locked it (database is locked): end the process"),
    ]
    if connection.vendor == "sqlite"
    else [
        (locked_tables, "another process has locked it (canceling statement due to lock timeout"),
        (lost_connections, "it is unreachable (terminating connection"),
    ],
)
def test_a_database_that_takes_nothing_loses_nothing(
    client: Client, job: int, break_it: Callable[[], Callable[[], None]], sentence: str
) -> None:
    rounds, seen, mends = iter(range(20)), [], []

    def renew() -> bool:
        """Between two rounds: look; break it before the first, and mend it after the second failure."""
        number = next(rounds)
        seen.append(history(client))
        if number == 0:
            mends.append(break_it())
        if number == 2:
            log.append_event(job, report(50), client=client)
            mends[0]()
            statements.clear()
        return number < 8

    run_ingest(client, Event(), renew, pause_s=0.0)
    assert sentence in seen[1].sentence
    assert f"No data is lost: Redis buffers 49 entries of job {job}; above 100,000" in seen[1].sentence
    assert history(client).sentence == ""
    assert [row.iteration for row in stored_reports()] == list(range(49))
    assert Job.objects.get(pk=job).samples == 49 * 8


def test_an_operator_is_notified_before_anybody_is_slowed_down(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.runtime.ingest_health.WORTH_SHOWING", 40)
    told = "History falls behind. No data is lost: Redis buffers 49 entries of job"
    assert history(client).sentence == f"{told} {job}; above 100,000, its processes are slowed down."
    monkeypatch.setattr(names, "LONG_LOG", 45)
    assert history(client).sentence.endswith("are slowed down to keep at most about 200,000.")
    assert 0 < WORTH_SHOWING < names.FULL_LOG


def test_history_that_only_falls_behind_is_a_warning_of_a_ready_service(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.runtime.ingest_health.WORTH_SHOWING", 40)
    reply = Browser().get("/readyz")
    assert (reply.status_code, reply.json()["warnings"]) == (200, [history(client).sentence])


def test_health_and_overview_report_that_history_stalls(client: Client, job: int) -> None:
    client.hset(names.INGEST_TROUBLE, mapping={"since_ms": 1_772_000_000_000, "why": "its disk is full."})
    browser = Browser()
    reply = browser.get("/readyz")
    assert (reply.status_code, "Ingest has been stalled since 2026-02-25" in reply.json()["detail"]) == (503, True)
    User.objects.update(is_superuser=True)
    browser.force_login(User.objects.get())
    assert "paceline_history_stopped 1.0" in browser.get("/metrics").content.decode()
    for page in ("/", "/live/"):
        assert "Ingest has been stalled since 2026-02-25" in browser.get(page).content.decode()
    client.delete(names.INGEST_TROUBLE)
    assert browser.get("/readyz").status_code == 200
    assert "notice-bad" not in browser.get("/").content.decode()


def test_only_the_database_itself_is_out_of_reach() -> None:
    assert is_out_of_reach(OperationalError("server closed the connection"))
    assert is_out_of_reach(InternalError("cannot execute INSERT in a read-only transaction"))
    assert not is_out_of_reach(DataError("integer out of range"))
    full = 'could not extend file "base/5/16412": No space left on device'
    assert "free disk space" in explained(OperationalError(full))
