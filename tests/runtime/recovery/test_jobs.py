"""A Redis that forgot: jobs continue from the database, in a new incarnation; nothing is lost, doubled, or ended."""

from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User

from controlplane.core.commands import IssueOrders, MoveJob
from controlplane.core.events import ConnectionLost, IncarnationBegan, StopRequested
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Decision, Job, Process
from controlplane.jobs.projections import LOST_AWAITS
from controlplane.protocol.spec import spec_document
from controlplane.runtime import log, names, recovery, scheduler
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.engines import RealEngines
from controlplane.runtime.faults import armed
from controlplane.runtime.recovery import AFTER_LOSS
from controlplane.runtime.redis import Client
from controlplane.runtime.redis_identity import settle
from controlplane.runtime.stored_log import stored_so_far
from controlplane.telemetry.models import Cursor, RawEvent
from tests.runtime.recovery.support import (
    Tail,
    copy_all,
    done,
    lose_everything,
    orders_sent,
    recover,
    replayed_as_stored,
    reports,
    say,
)
from tests.runtime.support import SPEC, Died, Driver, answered, die, logged, report, submit

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_job_whose_log_is_gone_continues_from_the_database(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0, 1, 2)
    copy_all(client)
    lose_everything(client)
    sent = orders_sent(client, job, lambda: recover(client, driver, job))
    assert [(orders["incarnation"], orders["generation"]) for orders in sent] == [(AFTER_LOSS, 1)] * 3
    say(client, driver, job, 3, 4)
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert (row.state, row.incarnation, row.iteration) == (JobState.RUNNING, AFTER_LOSS, 5)
    assert "Redis lost the log" in row.reason
    assert reports() == done(5)
    assert Decision.objects.get(job=job, kind="begin-incarnation").incarnation == AFTER_LOSS
    assert replayed_as_stored(job)
    assert Reservation.objects.count() == 3


def test_what_was_not_durable_is_sent_again_and_counts_once(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0, 1)
    copy_all(client)
    say(client, driver, job, 2, 3)  # answered, but never copied
    lose_everything(client)
    recover(client, driver, job)
    say(client, driver, job, 2, 3, 4)
    copy_all(client)
    assert reports() == done(5)
    assert Job.objects.get(pk=job).samples == 5 * 16
    assert replayed_as_stored(job)


def test_a_redis_that_lost_its_end_behind_the_database_continues_from_there(
    client: Client, driver: Driver, job: int
) -> None:
    say(client, driver, job, 0)
    tail = Tail(client)
    say(client, driver, job, 1, 2)
    copy_all(client)
    tail.lose()
    log.append_event(job, StopRequested(actor="nobody yet"), client=client)  # before anybody noticed
    recover(client, driver, job)
    copy_all(client)
    assert reports() == done(3)
    (began,) = Decision.objects.filter(kind="begin-incarnation")
    assert "the database has it up to" in began.reason
    assert Job.objects.get(pk=job).state == JobState.CANCELLED
    assert replayed_as_stored(job)


def test_a_redis_that_lost_what_no_one_had_copied_begins_anew_too(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    tail = Tail(client)
    say(client, driver, job, 1, 2)
    before = max(c.orders.sequence for _, _, c in answered(client, job) if isinstance(c, IssueOrders))
    tail.lose()
    recover(client, driver, job)
    last = [c.orders for _, _, c in answered(client, job) if isinstance(c, IssueOrders)][-1]
    assert (last.incarnation, last.sequence <= before) == (1, True)
    say(client, driver, job, 1, 2, 3)
    copy_all(client)
    assert reports() == done(4)
    assert replayed_as_stored(job)


@pytest.mark.parametrize("all_of_it", [True, False])
def test_an_incarnation_that_was_forgotten_before_it_was_copied_is_not_begun_again(
    client: Client, driver: Driver, job: int, all_of_it: bool
) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    tail = Tail(client)
    seen = []
    for _ in range(3):
        if all_of_it:
            lose_everything(client)
        else:
            tail.lose()
        driver.engines = driver.fresh_engines()
        sent = orders_sent(client, job, lambda: recover(client, driver, job))
        seen += sorted({(orders["incarnation"], orders["sequence"]) for orders in sent})
    assert [incarnation for incarnation, _ in seen] == sorted(incarnation for incarnation, _ in seen)
    assert len({incarnation for incarnation, _ in seen}) == 3
    say(client, driver, job, 1, 2)
    copy_all(client)
    assert reports() == done(3)
    assert replayed_as_stored(job)


def test_a_redis_that_only_seemed_gone_changes_nothing(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0)
    driver.engines = driver.fresh_engines()
    assert settle(client)
    say(client, driver, job, 1)
    assert not [entry for entry in logged(client, job) if isinstance(entry.event, IncarnationBegan)]


@pytest.mark.parametrize(
    "point", ["recovery.replayed", "recovery.begun", "coordinator.handled", "coordinator.committed"]
)
@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_coordinator_may_die_while_it_recovers(
    client: Client, driver: Driver, job: int, point: str, all_of_it: bool
) -> None:
    say(client, driver, job, 0)
    tail = Tail(client)
    say(client, driver, job, 1)
    copy_all(client)
    lose_everything(client) if all_of_it else tail.lose()
    settle(client)
    driver.engines = driver.fresh_engines()
    with armed(point, die), pytest.raises(Died):
        coordinate(job, driver.around())
    client.delete(names.state(job))
    driver.engines = driver.fresh_engines()
    settle(client)
    coordinate(job, driver.around())
    assert settle(client)
    say(client, driver, job, 2)
    copy_all(client)
    assert reports() == done(3)
    assert Decision.objects.filter(kind="begin-incarnation").count() == 1
    assert replayed_as_stored(job)


def test_decisions_about_entries_that_were_lost_stay_and_a_replay_leaves_them_out(
    client: Client, driver: Driver, job: int
) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    tail, copied = Tail(client), RawEvent.objects.latest("pk")
    log.append_event(job, ConnectionLost(role="worker", index=1, instance="w1.0.1"), client=client)
    coordinate(job, driver.around())
    copy_all(client)
    RawEvent.objects.filter(pk__gt=copied.pk).delete()  # as if ingest had written the commands, but not yet the events
    Cursor.objects.filter(stream="events").update(position=copied.stream_id)
    tail.lose()
    recover(client, driver, job)
    say(client, driver, job, 1)
    copy_all(client)
    assert Decision.objects.filter(kind="move-process", payload__state="unreachable").count() == 1
    assert set(Process.objects.values_list("state", flat=True)) == {ProcessState.READY}
    assert reports() == done(2)
    assert replayed_as_stored(job)


def test_what_is_copied_while_a_job_is_recovered_is_answered_afterwards(
    client: Client, driver: Driver, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    tail = Tail(client)
    tail.lose()

    def copy_meanwhile(number: int) -> Any:
        for rank in (0, 1):
            log.append_event(number, report(3, rank=rank, instance=f"w{rank}.0.1", position=16), client=client)
        stored = stored_so_far(number)
        copy_all(client)
        return stored

    monkeypatch.setattr(recovery, "stored_so_far", copy_meanwhile)
    recover(client, driver, job)
    copy_all(client)
    assert reports() == done(2)
    assert Job.objects.get(pk=job).state == JobState.RUNNING
    assert replayed_as_stored(job)


def test_answers_that_were_lost_are_written_again(client: Client, driver: Driver, job: int) -> None:
    tail = Tail(client)
    last = client.xrevrange(names.commands(job), count=1)[0][0].decode()
    log.append_event(job, ConnectionLost(role="worker", index=1, instance="w1.0.1"), client=client)
    coordinate(job, driver.around())
    copy_all(client)
    kept = set(Decision.objects.values_list("kind", "sequence"))
    Decision.objects.latest("sequence").delete()  # as if ingest had written the events, but not the commands
    Cursor.objects.filter(stream="commands").update(position=last)
    tail.lose()
    recover(client, driver, job)
    copy_all(client)
    assert set(Decision.objects.filter(incarnation=0).values_list("kind", "sequence")) == kept
    assert replayed_as_stored(job)


def test_ids_continue_behind_the_database_where_a_clock_went_back(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    ahead = "99999999999999-5"
    RawEvent.objects.filter(pk=RawEvent.objects.latest("pk").pk).update(stream_id=ahead)
    Cursor.objects.update(position=ahead)
    lose_everything(client)
    recover(client, driver, job)
    say(client, driver, job, 1)
    copy_all(client)
    assert reports() == done(2)


def test_a_job_that_only_waited_continues_waiting(client: Client, driver: Driver) -> None:
    settle(client)
    row = Job.objects.create(name="w", spec=spec_document(SPEC), submitted_by=User.objects.create(username="ann"))
    submit(client, row.pk)
    coordinate(row.pk, driver.around())
    copy_all(client)
    lose_everything(client)
    recover(client, driver, row.pk)
    assert scheduler.begin_logs() == []
    copy_all(client)
    assert Job.objects.get(pk=row.pk).state == JobState.SUBMITTED


def test_a_job_that_ended_just_before_stays_as_it_ended(client: Client, driver: Driver, job: int) -> None:
    tail = Tail(client)
    log.append_event(job, StopRequested(actor="ann"), client=client)
    coordinate(job, driver.around())
    copy_all(client)
    ended = Job.objects.get(pk=job)
    tail.lose()
    driver.engines = driver.fresh_engines()
    coordinate(job, driver.around())
    settle(client)
    assert Job.objects.get(pk=job).reason == ended.reason == "stopped by ann"
    assert not Reservation.objects.exists()
    assert not client.hlen(names.agent_processes(Agent.objects.get().pk))
    assert not client.sismember(names.LIVE_JOBS, job)


def test_a_log_that_cannot_be_rebuilt_pauses_its_job_until_it_can(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    first = RawEvent.objects.earliest("pk")
    RawEvent.objects.filter(pk=first.pk).delete()
    lose_everything(client)
    settle(client)
    driver.engines = driver.fresh_engines()
    coordinate(job, driver.around())
    assert settle(client), "the others are not kept waiting"
    row = Job.objects.get(pk=job)
    assert (row.state, row.awaited) == (JobState.PAUSED, LOST_AWAITS)
    assert "the start of the log is missing" in row.reason
    first.save(force_insert=True)
    client.delete(names.state(job), names.RECOVERED)
    recover(client, driver, job)
    copy_all(client)
    assert Job.objects.get(pk=job).state == JobState.RUNNING


def test_a_job_that_cannot_be_rebuilt_can_be_stopped(client: Client, driver: Driver, job: int) -> None:
    copy_all(client)
    RawEvent.objects.earliest("pk").delete()
    tail = Tail(client)
    tail.lose()
    client.hdel(names.engine(job), "snapshot")
    client.execute_command("XTRIM", names.events(job), "MAXLEN", 1)
    log.append_event(job, StopRequested(actor="ann"), client=client)
    driver.engines = driver.fresh_engines()
    coordinate(job, driver.around())
    row = Job.objects.get(pk=job)
    assert (row.state, row.reason.startswith("stopped by ann; ")) == (JobState.CANCELLED, True)
    assert set(Process.objects.values_list("state", flat=True)) == {ProcessState.STOPPED}
    assert not Reservation.objects.exists()


def test_a_snapshot_of_another_version_is_made_good_from_the_database(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0, 1)
    copy_all(client)
    client.hset(names.engine(job), "snapshot", msgspec.msgpack.encode({"version": 1}))
    client.execute_command("XTRIM", names.events(job), "MAXLEN", 1)
    driver.engines = driver.fresh_engines()
    say(client, driver, job, 2)
    copy_all(client)
    assert "its snapshot could not be read (snapshot has version 1" in Job.objects.get(pk=job).reason
    assert reports() == done(3)
    assert replayed_as_stored(job)


def test_a_snapshot_of_another_version_costs_nothing_while_the_log_is_whole(
    client: Client, driver: Driver, job: int
) -> None:
    client.hset(names.engine(job), "snapshot", msgspec.msgpack.encode({"version": 1}))
    driver.engines = driver.fresh_engines()
    say(client, driver, job, 0)
    copy_all(client)
    assert Job.objects.get(pk=job).incarnation == 0


class _Otherwise(RealEngines):
    """A release whose engine halves the leave that the one before gave."""

    def new(self, job: int) -> Any:
        return _other(super().new(job))

    def restore(self, snapshot: bytes) -> Any:
        return _other(super().restore(snapshot))


def _other(engine: Any) -> Any:
    handle = engine.handle

    def decide(entry: Any) -> list[Any]:
        return [
            msgspec.structs.replace(c, orders=msgspec.structs.replace(c.orders, decision_timeout_s=9.0))
            if isinstance(c, IssueOrders)
            else c
            for c in handle(entry)
        ]

    engine.handle = decide
    return engine


def test_a_release_that_decides_otherwise_reports_it_and_published_orders_win(
    client: Client, driver: Driver, job: int
) -> None:
    say(client, driver, job, 0, 1)
    client.hdel(names.engine(job), "snapshot")
    before = answered(client, job)
    driver.kind = _Otherwise()
    driver.engines = driver.fresh_engines()
    say(client, driver, job, 2)
    copy_all(client)
    assert answered(client, job)[: len(before)] == before
    (began,) = Decision.objects.filter(kind="begin-incarnation")
    assert "was published, but a replay gives" in began.reason
    assert "a replay gives issue-orders" in began.reason
    assert Job.objects.get(pk=job).reason == f"incarnation 1: {began.reason}"
    moved = [c for _, _, c in answered(client, job) if isinstance(c, MoveJob)][-1]
    assert moved.state is JobState.RUNNING
    assert reports() == done(3)
