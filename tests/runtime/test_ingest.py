"""Streams to rows: all of them, once each, wherever ingest dies."""

from threading import Event
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import DataError, OperationalError

from controlplane.core.commands import MoveJob, MoveProcess, RaiseFlag, ReleaseSlots, SetPlacement, SetRoster, SetShares
from controlplane.core.events import EngineFailed, StopRequested, WorkerMessageReceived
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.protocol.messages import BlockExchanged, Exchanged, WorkerHello
from controlplane.protocol.messages import Evaluation as EvaluationMessage
from controlplane.protocol.orders import Block
from controlplane.protocol.spec import spec_document
from controlplane.runtime import folds, log, names
from controlplane.runtime.batches import StaleCursor, copied_so_far, write_batch
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.executor import effects_of
from controlplane.runtime.faults import POINTS, armed
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.lease import Lease, Position
from controlplane.runtime.redis import Client
from controlplane.runtime.streams import trim
from controlplane.telemetry import folding
from controlplane.telemetry.folding import unfolded
from controlplane.telemetry.history import read_columns
from controlplane.telemetry.models import Chunk, Cursor, EngineSnapshot, Evaluation, RawEvent
from tests.runtime.support import (
    SPEC,
    CountingEngine,
    Died,
    Driver,
    State,
    die,
    durable_numbers,
    facts,
    greeted,
    report,
    submit,
)
from tests.telemetry.reports import stored_reports

pytestmark = pytest.mark.django_db(transaction=True)

IN_INGEST = [point for point in POINTS if point.startswith("ingest.")]


@pytest.fixture
def job(client: Client, enqueued: list[int]) -> int:
    user = User.objects.create(username="ann")
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=user)
    submit(client, row.pk)
    return row.pk


@pytest.fixture
def agent() -> int:
    return Agent.objects.create(name="m1", credential_digest="d").pk


def new_ingest(client: Client) -> Ingest:
    return Ingest(client, Event(), wait_s=0.001)


def copy_all(client: Client) -> None:
    ingest = new_ingest(client)
    while ingest.step():
        pass


def command(client: Client, job: int, *commands: Any) -> None:
    """Commit commands as a coordinator would."""
    client.delete(names.state(job))
    lease = Lease.take(client, job)
    assert lease is not None
    last = client.xrevrange(names.events(job), count=1)[0][0].decode()
    lease.commit(
        effects_of(facts(job), commands), Position(cursor=last, deadline_ms=None, over=False), first=last, version="1"
    )
    assert lease.release("idle")


def ready(job: int, agent: int, rank: int) -> MoveProcess:
    return MoveProcess(
        cause="1700000000000-0",
        reason="it said hello",
        role="worker",
        index=rank,
        instance=f"w{rank}.0.1",
        state=ProcessState.READY,
        agent=agent,
        slot=rank,
    )


def test_reports_become_rows_and_sums(client: Client, job: int, agent: int) -> None:
    greeted(job, 0, 1)
    everybody = SetRoster(cause="1700000000000-0", reason="first", generation=1, first_iteration=0, ranks=[0, 1])
    command(client, job, ready(job, agent, 0), ready(job, agent, 1), everybody)
    for rank in (0, 1):
        for number in range(2, 5 - rank):
            log.append_event(job, report(number, rank=rank, instance=f"w{rank}.0.1"), client=client)
    copy_all(client)
    rows = sorted((row.rank, row.instance, row.iteration, row.samples, row.loss) for row in stored_reports())
    assert rows == [
        *((0, "w0.0.1", iteration, 8, 0.5) for iteration in range(3)),
        *((1, "w1.0.1", iteration, 8, 0.5) for iteration in range(2)),
    ]
    row = Job.objects.get(pk=job)
    assert (row.samples, row.iteration) == (40, 2)
    assert (row.busy_s, row.waiting_s, row.coordination_s) == pytest.approx((5 * 0.13, 5 * 0.3, 5 * 0.001))
    assert list(Process.objects.order_by("index").values_list("iteration", flat=True)) == [2, 1]
    kinds = list(RawEvent.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["job-submitted", *["report"] * 5]


def test_a_worker_that_was_drained_holds_the_jobs_iteration_back_no_more(client: Client, job: int, agent: int) -> None:
    greeted(job, 0, 1)
    at = "1700000000000-0"
    both = SetRoster(cause=at, reason="first", generation=1, first_iteration=0, ranks=[0, 1])
    command(client, job, ready(job, agent, 0), ready(job, agent, 1), both)
    copy_all(client)
    drained = msgspec.structs.replace(ready(job, agent, 1), state=ProcessState.STOPPED, reason="was drained by ann")
    command(client, job, drained, SetRoster(cause=at, reason="w1 left", generation=2, first_iteration=1, ranks=[0]))
    for rank, iterations in ((1, 1), (0, 3)):
        for iteration in range(iterations):
            log.append_event(job, report(2 + iteration, rank=rank, instance=f"w{rank}.0.1"), client=client)
    copy_all(client)
    assert Job.objects.get(pk=job).iteration == 3


def test_a_job_knows_the_samples_of_an_epoch_from_its_workers(client: Client, job: int) -> None:
    hello = WorkerHello(number=1, parameter_count=650, sample_count=1437)
    log.append_event(job, WorkerMessageReceived(rank=0, instance="w0.0.1", message=hello), client=client)
    copy_all(client)
    assert Job.objects.get(pk=job).training_samples == 1437


def test_a_report_sent_twice_is_one_row_and_counts_once(client: Client, job: int, agent: int) -> None:
    greeted(job)
    command(client, job, ready(job, agent, 0))
    for number in (2, 3, 2, 3):
        log.append_event(job, report(number), client=client)
    copy_all(client)
    log.append_event(job, report(3), client=client)
    copy_all(client)
    assert (len(stored_reports()), RawEvent.objects.filter(kind="report").count()) == (2, 5)
    assert Job.objects.get(pk=job).samples == 16
    assert Process.objects.get(job=job).iteration == 1


def test_servers_show_their_loads_and_the_median_of_their_exchanges(client: Client, job: int, agent: int) -> None:
    greeted(job)
    blocks = [Block(index=at, start=100 * at, stop=100 * at + 100, server=at % 2) for at in range(3)]
    placed = SetPlacement(cause="1700000000000-0", reason="evenly", version=1, policy="psld", blocks=blocks)
    servers = [msgspec.structs.replace(ready(job, agent, at), role="server", instance=f"s{at}.0.1") for at in range(2)]
    command(client, job, *servers, placed)
    for number, push_s in enumerate((0.25, 0.5, 9.0), start=2):
        probe = Exchanged(server=1, bytes=99, push_s=7.0, pull_s=7.0, is_probe=True)
        seen = [Exchanged(server=0, bytes=800, push_s=push_s, pull_s=0.125), probe]
        log.append_event(job, report(number, exchanges=seen), client=client)
    copy_all(client)
    rows = Process.objects.filter(role="server").order_by("index")
    assert list(rows.values_list("blocks", "held_bytes", "push_s", "pull_s")) == [
        (2, 800, 0.5, 0.125),
        (1, 400, None, None),
    ]


def test_servers_show_what_each_of_their_blocks_takes(client: Client, job: int, agent: int) -> None:
    greeted(job)
    command(client, job, msgspec.structs.replace(ready(job, agent, 0), role="server", instance="s0.0.1"))
    for number, (push_s, pull_s) in enumerate([(0.25, 0.5), (0.5, 0.125), (9.0, 0.25)], start=2):
        seen = [
            BlockExchanged(block=block, server=0, bytes=400, push_s=push_s + block, pull_s=pull_s, exchanges=3)
            for block in (0, 2)
        ]
        log.append_event(job, report(number, blocks=seen), client=client)
    copy_all(client)
    assert Process.objects.get(role="server").block_times == [
        {"block": 0, "bytes": 400, "push_s": 0.5, "pull_s": 0.25},
        {"block": 2, "bytes": 400, "push_s": 2.5, "pull_s": 0.25},
    ]


def test_a_score_that_is_no_number_is_stored_as_none(client: Client, job: int) -> None:
    score = EvaluationMessage(number=3, iteration=20, loss=None, accuracy=None, samples=360, seconds=0.01)
    log.append_event(job, WorkerMessageReceived(rank=0, instance="w0.0.1", message=score), client=client)
    copy_all(client)
    assert list(Evaluation.objects.values_list("loss", "accuracy")) == [(None, None)]


def test_an_entry_of_the_log_that_is_no_event_ends_its_job_as_text(client: Client, job: int) -> None:
    greeted(job)
    stream_id = log.append_event(job, report(2, position=2**63), client=client)
    copy_all(client)
    assert list(RawEvent.objects.order_by("id").values_list("kind", flat=True)) == ["job-submitted", "engine-failed"]
    (entry,) = log.read_entries(client, job, after="0-0", count=9, block_s=0)[1:]
    assert isinstance(entry.event, EngineFailed)
    assert entry.event.entry == stream_id
    assert "`$.message.position`" in entry.event.reason


def test_an_evaluation_is_a_row_and_the_jobs_last_score(client: Client, job: int) -> None:
    score = EvaluationMessage(number=3, iteration=20, loss=0.25, accuracy=0.9, samples=360, seconds=0.01)
    for _ in range(2):
        log.append_event(job, WorkerMessageReceived(rank=0, instance="w0.0.1", message=score), client=client)
    copy_all(client)
    assert list(Evaluation.objects.values_list("iteration", "loss", "accuracy", "samples")) == [(20, 0.25, 0.9, 360)]
    assert list(Job.objects.values_list("loss", "accuracy")) == [(0.25, 0.9)]


def test_commands_move_job_processes_flags_and_slots(client: Client, job: int, agent: int) -> None:
    Reservation.objects.create(agent_id=agent, role="worker", slot=0, job_id=job, index=0)
    at = "1700000000000-0"
    command(
        client,
        job,
        ready(job, agent, 0),
        MoveJob(cause=at, reason="all are ready", state=JobState.RUNNING, awaited=""),
        SetRoster(cause=at, reason="first", generation=1, first_iteration=0, ranks=[0]),
        SetShares(cause=at, reason="even", generation=1, iteration=0, policy="uniform", shares={0: 8}),
        RaiseFlag(
            cause=at,
            reason="w0 is slow",
            flag="f1",
            rank=0,
            kind="compute",
            persistence="lasting",
            evidence={"ratio": 2.5},
        ),
    )
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert (row.state, row.reason, row.generation) == (JobState.RUNNING, "all are ready", 1)
    assert row.started_at is not None
    assert row.started_at.timestamp() == 1_700_000_000
    process = Process.objects.get(job=job)
    assert (process.state, process.agent_id, process.share, process.ended_at) == ("ready", agent, 8, None)
    assert list(Flag.objects.values_list("key", "sentence", "evidence")) == [("f1", "w0 is slow", {"ratio": 2.5})]
    assert list(Decision.objects.order_by("sequence").values_list("sequence", "kind", "iteration")) == [
        (1, "move-process", None),
        (2, "move-job", None),
        (3, "set-roster", 0),
        (4, "set-shares", 0),
        (5, "raise-flag", None),
    ]
    assert Decision.objects.get(sequence=4).payload["shares"] == {"0": 8}
    command(client, job, ReleaseSlots(cause=at, reason="over"))
    copy_all(client)
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("point", IN_INGEST)
def test_nothing_is_lost_or_doubled_where_ingest_dies(
    client: Client, driver: Driver, job: int, agent: int, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted(job)
    monkeypatch.setattr(folds, "ROWS", 1)
    monkeypatch.setattr(folds, "PER_SENDER", 1)
    for number in (2, 3, 4):
        log.append_event(job, report(number), client=client)
    coordinate(job, driver.around())
    command(client, job, ready(job, agent, 0))
    with armed(point, die), pytest.raises(Died):
        copy_all(client)
    log.append_event(job, report(5), client=client)
    copy_all(client)
    assert sorted(row.iteration for row in stored_reports()) == [0, 1, 2, 3]
    assert RawEvent.objects.count() == 5
    assert list(Decision.objects.values_list("sequence", flat=True)) == [4]
    assert Job.objects.get(pk=job).samples == 32
    assert list(read_columns(job, ("samples",))[0]["iteration"]) == [0, 1, 2, 3]
    assert unfolded(job) == 0


def test_a_second_writer_changes_nothing(client: Client, job: int) -> None:
    greeted(job)
    log.append_event(job, report(2), client=client)
    behind = copied_so_far(job)
    copy_all(client)
    entries = client.xrange(names.events(job))
    with pytest.raises(StaleCursor, match=f"job {job}: cursor of events"):
        write_batch(job, behind, [], entries)
    assert (len(stored_reports()), RawEvent.objects.count()) == (1, 2)


def test_streams_are_trimmed_to_the_lower_of_database_and_snapshot(client: Client, job: int) -> None:
    greeted(job)
    ids = [log.append_event(job, report(number), client=client) for number in range(2, 1002)]
    copy_all(client)
    copied = copied_so_far(job).position
    trim(client, job, copied)
    assert client.xlen(names.events(job)) == 1001, "no snapshot covers anything yet"
    twin = CountingEngine(State(cursor=ids[499]))
    known = {"snapshot": twin.snapshot(), "snapshot_cursor": ids[499], "snapshot_commands": "0-0"}
    client.hset(names.engine(job), mapping=known)
    trim(client, job, copied)
    left = [stream_id.decode() for stream_id, _ in client.xrange(names.events(job))]
    assert len(left) < 700
    assert left[left.index(ids[500]) :] == ids[500:]


def test_a_job_that_is_over_is_forgotten_once_it_is_copied(client: Client, driver: Driver, job: int) -> None:
    greeted(job)
    EngineSnapshot.objects.create(job_id=job, cursor="1-0", sequence=0, incarnation=0, version="1", data=b"")
    log.append_event(job, StopRequested(actor="ann"), client=client)
    coordinate(job, driver.around())
    command_over = MoveJob(cause="1700000000000-0", reason="stopped", state=JobState.CANCELLED)
    client.xadd(names.commands(job), {"c": effects_of(facts(job), [command_over]).commands, "sequence": 1})
    copy_all(client)
    assert client.scard(names.LIVE_JOBS) == 1, "it is copied, and forgotten at the next look"
    copy_all(client)
    assert sorted(client.keys(f"job:{job}:*")) == [names.engine(job).encode()]
    assert (client.scard(names.LIVE_JOBS), EngineSnapshot.objects.count()) == (0, 0)
    with pytest.raises(log.LogClosed, match="is over"):
        log.append_event(job, report(2), client=client)


def test_a_job_that_is_over_is_folded_before_it_is_forgotten(client: Client, driver: Driver, job: int) -> None:
    greeted(job)
    log.append_event(job, report(2), client=client)
    log.append_event(job, StopRequested(actor="ann"), client=client)
    coordinate(job, driver.around())
    command_over = MoveJob(cause="1700000000000-0", reason="stopped", state=JobState.CANCELLED)
    client.xadd(names.commands(job), {"c": effects_of(facts(job), [command_over]).commands, "sequence": 1})
    copy_all(client)
    assert (client.scard(names.LIVE_JOBS), unfolded(job)) == (1, 1)
    copy_all(client)
    assert (client.scard(names.LIVE_JOBS), unfolded(job)) == (1, 0)
    copy_all(client)
    assert client.scard(names.LIVE_JOBS) == 0


def test_pages_are_notified_after_the_commit(client: Client, job: int) -> None:
    heard = client.pubsub()
    heard.subscribe(names.PAGES)
    heard.get_message(timeout=1.0)
    copy_all(client)
    message = heard.get_message(timeout=1.0)
    heard.close()
    assert message is not None
    assert f'"jobs":{{"{job}":"submitted"}}'.encode() in message["data"]
    assert Cursor.objects.get(stream="events").position != "0-0"


@pytest.fixture
def second(client: Client, job: int) -> int:
    row = Job.objects.create(name="digits", spec=spec_document(SPEC), submitted_by=User.objects.get())
    submit(client, row.pk)
    return row.pk


def test_a_job_that_could_not_be_written_is_tried_again_ever_more_seldom(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("controlplane.runtime.ingest.time.monotonic", lambda: now)
    tried: list[float] = []

    def refuse(*_: object) -> None:
        tried.append(now)
        raise DataError("integer out of range")

    def refuse_too(*_: object) -> None:
        raise DataError("nor by itself")

    ingest = new_ingest(client)
    with monkeypatch.context() as broken:
        broken.setattr("controlplane.runtime.ingest.write_batch", refuse)
        broken.setattr("controlplane.runtime.dead_letters.write_apart", refuse_too)
        for _ in range(16):
            ingest.step()
            now += 0.5
    assert tried == [1000.0, 1001.0, 1003.0, 1007.0]
    now = 1015.0
    assert ingest.step()
    assert RawEvent.objects.filter(job_id=job).count() == 1


def test_a_live_job_without_a_row_does_not_stop_the_others(client: Client, job: int) -> None:
    submit(client, job + 1)
    copy_all(client)
    assert RawEvent.objects.filter(job_id=job).count() == 1


def test_folding_fills_the_time_of_a_round_and_makes_none_follow_at_once(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folds, "ROWS", 1)
    monkeypatch.setattr(folds, "PER_SENDER", 1)
    monkeypatch.setattr(folding, "BLOCKS", 1)
    monkeypatch.setattr("controlplane.runtime.ingest.time.monotonic", lambda: 1000.0)
    for rank in range(3):
        log.append_event(job, report(1, rank=rank, instance=f"w{rank}.0.1", iteration=0, position=0), client=client)
    ingest = new_ingest(client)
    assert ingest.step()
    assert not ingest.behind
    assert Chunk.objects.filter(job_id=job, column="loss").count() == 3
    assert unfolded(job) == 0


def test_durable_numbers_follow_the_rows_and_stop_before_a_gap(client: Client, job: int) -> None:
    for number in (1, 2, 4, 5):
        log.append_event(job, report(number, iteration=number, position=0), client=client)
    log.append_event(job, report(1, rank=1, instance="w1.0.1", iteration=0, position=0), client=client)
    assert durable_numbers(client, job) == {}
    copy_all(client)
    assert durable_numbers(client, job) == {"w0.0.1": 2, "w1.0.1": 1}
    for number in (3, 4, 5):
        log.append_event(job, report(number, iteration=number, position=0), client=client)
    copy_all(client)
    assert durable_numbers(client, job) == {"w0.0.1": 5, "w1.0.1": 1}


def test_durable_numbers_are_reported_though_the_database_goes_away_in_the_same_round(
    client: Client, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Job.objects.create(name="second", spec=spec_document(SPEC), submitted_by=User.objects.get()).pk
    submit(client, second)
    ingest = new_ingest(client)
    while ingest.step():
        pass
    for each in (job, second):
        log.append_event(each, report(1, iteration=0, position=0), client=client)

    def away(number: int, *rest: Any) -> int:
        if number == second:
            raise OperationalError("the connection is lost")
        return write_batch(number, *rest)

    monkeypatch.setattr("controlplane.runtime.ingest.write_batch", away)
    with pytest.raises(OperationalError):
        ingest.step()
    assert durable_numbers(client, job) == {"w0.0.1": 1}
    assert durable_numbers(client, second) == {}


@pytest.mark.parametrize("point", ["ingest.written", "ingest.committed"])
def test_durable_numbers_never_exceed_the_database_and_are_resent(client: Client, job: int, point: str) -> None:
    log.append_event(job, report(1, iteration=0, position=0), client=client)
    with armed(point, die), pytest.raises(Died):
        copy_all(client)
    assert durable_numbers(client, job) == {}
    copy_all(client)
    assert durable_numbers(client, job) == {"w0.0.1": 1}
    client.delete(names.durable(job))
    copy_all(client)
    assert durable_numbers(client, job) == {"w0.0.1": 1}, "a Redis that forgot is told again"
