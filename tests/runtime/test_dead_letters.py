"""An entry that cannot be written is set aside, ends its own job, and stops nothing else; on either database."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import DataError, connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from controlplane.core.commands import MoveJob, MoveProcess
from controlplane.core.events import Assignment, EngineFailed, ProcessDied, SlotsAssigned, StopRequested
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs import projections
from controlplane.jobs.models import Decision, Job, Process
from controlplane.protocol.spec import spec_document
from controlplane.runtime import batches, dead_letters, log, names
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.engines import RealEngines
from controlplane.runtime.redis import Client
from controlplane.telemetry.models import Cursor, DeadLetter, RawEvent
from tests.runtime.support import SPEC, Driver, durable_numbers, greeted, logged, report, submit
from tests.runtime.test_ingest import command, copy_all, new_ingest, ready
from tests.telemetry.reports import stored_reports

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def user() -> User:
    return User.objects.create(username="ann")


@pytest.fixture
def job(client: Client, enqueued: list[int], user: User) -> int:
    return submitted(client, user)


@pytest.fixture
def other(client: Client, job: int, user: User) -> int:
    return submitted(client, user)


def submitted(client: Client, user: User) -> int:
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user)
    submit(client, row.pk)
    return row.pk


@pytest.fixture
def bad_iteration(monkeypatch: pytest.MonkeyPatch) -> int:
    """Reports of that iteration are taken by no database: the databases themselves refuse them, in their own ways."""
    told = batches.record_events

    def record(job: int, incarnation: int, entries: Sequence[Any], are_next: Sequence[bool]) -> Any:
        progress = told(job, incarnation, entries, are_next)
        if any(getattr(getattr(each.entry.event, "message", None), "iteration", 0) == 13 for each in entries):
            with connection.cursor() as cursor:
                if connection.vendor == "postgresql":
                    cursor.execute("SELECT %s::int", [2**40])
                else:
                    cursor.execute("SELECT %s", [2**63])
        return progress

    monkeypatch.setattr(batches, "record_events", record)
    return 13


def failures(client: Client, job: int) -> list[EngineFailed]:
    return [entry.event for entry in logged(client, job) if isinstance(entry.event, EngineFailed)]


def test_an_event_that_no_database_takes_is_set_aside_and_ends_its_own_job(
    client: Client, job: int, other: int, bad_iteration: int, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2, 3):
        iteration = bad_iteration if number == 2 else number
        log.append_event(job, report(number, iteration=iteration, position=0), client=client)
        log.append_event(other, report(number, iteration=number, position=0), client=client)
    copy_all(client)
    iterations = {job: [1, 3], other: [1, 2, 3]}
    for each, expected in iterations.items():
        assert [row.iteration for row in stored_reports(each)] == expected
    bad = logged(client, job)[2]
    letter = DeadLetter.objects.get()
    assert (letter.job_id, letter.stream, letter.stream_id, letter.kind) == (job, "events", bad.id, "report")
    assert bytes(letter.payload) == log.encode_event(bad.event)
    assert "Error" in letter.cause
    assert RawEvent.objects.filter(job=job, stream_id=bad.id).exists(), "the log stays whole"
    assert durable_numbers(client, job) == {"w0.0.1": 3}, "nobody need say it again"
    (failed,) = failures(client, job)
    assert failed.entry == bad.id
    assert failed.reason.startswith("its history could not be written (report: ")
    assert failures(client, other) == []
    assert [record.msg["job"] for record in caplog.records if "became a dead letter" in str(record.msg)] == [job]


@pytest.fixture
def slots(client: Client, job: int) -> list[Assignment]:
    """What the job holds of a machine."""
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    found = []
    for slot, (role, index) in enumerate([("worker", 0), ("worker", 1), ("server", 0)]):
        Reservation.objects.create(agent_id=agent, role=role, slot=slot, job_id=job, index=index)
        found.append(Assignment(role=role, index=index, agent=agent, slot=slot))
    log.append_event(job, SlotsAssigned(assignments=found), client=client)
    return found


def end_processes(client: Client, job: int, slots: list[Assignment]) -> None:
    """As their agents say it, once they are ordered no longer."""
    for each in slots:
        instance = f"{each.role[0]}{each.index}.0.1"
        died = ProcessDied(role=each.role, index=each.index, instance=instance, status=-15)
        log.append_event(job, died, client=client)


def test_the_job_ends_with_the_reason_and_its_slots_are_free(
    client: Client, job: int, slots: list[Assignment], bad_iteration: int, enqueued: list[int]
) -> None:
    driver = Driver(client=client, enqueued=enqueued, kind=RealEngines())
    log.append_event(job, report(1, iteration=bad_iteration, position=0), client=client)
    for _ in range(2):
        coordinate(job, driver.around())
        copy_all(client)
    end_processes(client, job, slots)
    coordinate(job, driver.around())
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert row.state == JobState.FAILED
    assert "its history could not be written (report: " in row.reason
    assert not Reservation.objects.exists()


def test_a_job_with_an_entry_set_aside_can_be_stopped_in_the_meantime(
    client: Client, job: int, slots: list[Assignment], bad_iteration: int, enqueued: list[int]
) -> None:
    driver = Driver(client=client, enqueued=enqueued, kind=RealEngines())
    log.append_event(job, report(1, iteration=bad_iteration, position=0), client=client)
    log.append_event(job, StopRequested(actor="ann"), client=client)
    end_processes(client, job, slots)
    coordinate(job, driver.around())
    copy_all(client)
    assert (Job.objects.get(pk=job).state, Job.objects.get(pk=job).reason) == (JobState.CANCELLED, "stopped by ann")
    assert not Reservation.objects.exists()
    assert DeadLetter.objects.count() == 1


def test_of_an_answer_only_the_command_that_fails_is_set_aside(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    whole = projections.insert_rows

    def refuse(table: Any, fields: Any, rows: list[Any]) -> None:
        if table is Decision and any("evil" in str(row) for row in rows):
            raise DataError("text with a NUL")
        whole(table, fields, rows)

    monkeypatch.setattr(projections, "insert_rows", refuse)
    evil = msgspec.structs.replace(ready(job, agent, 1), reason="evil")
    command(client, job, ready(job, agent, 0), evil, msgspec.structs.replace(ready(job, agent, 2)))
    copy_all(client)
    assert list(Process.objects.order_by("index").values_list("index", flat=True)) == [0, 2]
    letter = DeadLetter.objects.get()
    assert (letter.stream, letter.kind, letter.cause) == ("commands", "move-process", "DataError: text with a NUL")
    assert msgspec.msgpack.decode(bytes(letter.payload), type=MoveProcess) == evil
    assert list(Decision.objects.order_by("sequence").values_list("sequence", flat=True)) == [1, 3]


def test_where_the_end_of_a_job_cannot_be_written_it_ends_anyway_and_frees_its_slots(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent.objects.create(name="m1", credential_digest="d").pk
    Reservation.objects.create(agent_id=agent, role="worker", slot=0, job_id=job, index=0)

    def refuse(job_id: int, commands: Sequence[Any]) -> None:
        if any(isinstance(each, MoveJob) for each in commands):
            raise DataError("no")

    monkeypatch.setattr(projections, "_move_job", refuse)
    command(client, job, MoveJob(cause="1700000000000-0", reason="stopped", state=JobState.CANCELLED))
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert (row.state, row.finished_at is not None) == (JobState.FAILED, True)
    assert "its history could not be written (move-job: DataError: no)" in row.reason
    assert not Reservation.objects.exists()


def test_an_answer_that_cannot_be_read_is_set_aside(client: Client, job: int, other: int) -> None:
    client.xadd(names.commands(job), {"c": b"\xc1", "sequence": 1})
    greeted(other)
    log.append_event(other, report(2), client=client)
    copy_all(client)
    assert DeadLetter.objects.get().kind == "unreadable"
    assert len(failures(client, job)) == 1
    assert [row.job_id for row in stored_reports()] == [other]


def test_a_job_ends_although_ingest_died_before_it_published_the_end(
    client: Client, job: int, bad_iteration: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append_event(job, report(1, iteration=bad_iteration, position=0), client=client)
    with monkeypatch.context() as dying:
        dying.setattr(dead_letters, "end_job", lambda *_: None)
        copy_all(client)
    assert failures(client, job) == []
    copy_all(client)
    assert len(failures(client, job)) == 1


def test_readyz_and_the_system_page_report_how_many_of_which_jobs_and_the_cure(
    client: Client, job: int, bad_iteration: int, user: User
) -> None:
    assert job_warnings(client) == ""
    log.append_event(job, report(1, iteration=bad_iteration, position=0), client=client)
    copy_all(client)
    reply = Browser().get("/readyz")
    assert reply.status_code == 200
    (told,) = reply.json()["warnings"]
    assert told.startswith(f"1 entry of job {job} could not be written and was set aside (the last one: report, ")
    assert "That job has failed, all others continue. Submit again once the cause is fixed" in told
    browser = Browser()
    user.is_superuser = True
    user.save()
    browser.force_login(user)
    assert f"1 entry of job {job} could not be written" in browser.get("/system/").content.decode()


def test_of_one_job_no_more_are_kept_than_help(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch, bad_iteration: int
) -> None:
    monkeypatch.setattr(dead_letters, "MOST_LETTERS", 2)
    for number in range(1, 6):
        log.append_event(job, report(number, iteration=bad_iteration, position=0), client=client)
    copy_all(client)
    assert DeadLetter.objects.count() == 2
    assert Cursor.objects.get(job=job, stream="events").position >= logged(client, job)[5].id


def test_nothing_more_is_done_where_all_is_well(client: Client, job: int) -> None:
    """No query more than before: what fails is looked for where something has failed."""
    greeted(job)
    ingest = new_ingest(client)
    ingest.step()
    log.append_event(job, report(2), client=client)
    with CaptureQueriesContext(connection) as asked:
        batches.write_batch(job, ingest._jobs[job], *ingest._read()[job])
    assert not [each["sql"] for each in asked if "deadletter" in each["sql"]]
    assert len(asked) == 2, "those that Django builds, which the statements of each batch are not"
