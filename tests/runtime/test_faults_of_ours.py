"""Faults of our own: whatever throws, one job ends by it, gives its slots back, and the others continue."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User

from controlplane.core.commands import AnyCommand, IssueOrders
from controlplane.core.events import EngineFailed, Entry, ProcessDied
from controlplane.core.states import JobState
from controlplane.fleet.models import Agent, Reservation
from controlplane.jobs.models import Job, Process
from controlplane.policies.batching.uniform import Uniform
from controlplane.policies.stragglers.evidence import Evidence
from controlplane.protocol.spec import spec_document
from controlplane.runtime import engines, executor, log, names
from controlplane.runtime.coordinator import coordinate
from controlplane.runtime.engines import AnyEngine, RealEngines
from controlplane.runtime.executor import Effects, JobFacts
from controlplane.runtime.faults import armed
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.redis import Client
from tests.core.story import Story
from tests.runtime.support import CountingEngine, Died, Driver, State, answered, die, logged, report, submit

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 2


@pytest.fixture
def driver(client: Client, enqueued: list[int]) -> Driver:
    return Driver(client=client, kind=RealEngines(), enqueued=enqueued)


@pytest.fixture
def story() -> Story:
    return Story(workers=WORKERS, servers=1).running()


@pytest.fixture
def job(client: Client, story: Story, driver: Driver) -> int:
    """A job that runs, and has its slots."""
    for agent in (1, 2):
        Agent.objects.create(pk=agent, name=f"m{agent}", credential_digest=str(agent))
    row = Job.objects.create(
        name="digits", spec=spec_document(story.spec), submitted_by=User.objects.create(username="ann")
    )
    for rank in range(WORKERS):
        Reservation.objects.create(agent_id=1, role="worker", slot=rank, job_id=row.pk, index=rank)
    Reservation.objects.create(agent_id=2, role="server", slot=0, job_id=row.pk, index=0)
    submit(client, row.pk, story.spec)
    say(client, row.pk, story.entries[1:])
    coordinate(row.pk, driver.around())
    copy_all(client)
    assert Job.objects.get(pk=row.pk).state == JobState.RUNNING
    return row.pk


def say(client: Client, job: int, entries: Iterable[Entry]) -> None:
    for entry in entries:
        log.append_event(job, entry.event, client=client)


def iterate(client: Client, job: int, story: Story) -> None:
    """Every worker reports a few iterations, enough for the next decision."""
    seen = len(story.entries)
    for iteration in range(3):
        for rank in range(WORKERS):
            story.report(rank, iteration)
    say(client, job, story.entries[seen:])


def copy_all(client: Client) -> None:
    ingest = Ingest(client, Event(), wait_s=0.001)
    while ingest.step():
        pass


def end_processes(client: Client, job: int) -> None:
    """As agents do once they are told that nothing of the job should run."""
    assert [client.hlen(names.agent_processes(agent)) for agent in (1, 2)] == [0, 0]
    for process in Process.objects.filter(job_id=job):
        event = ProcessDied(
            role="worker" if process.role == "worker" else "server",
            index=process.index,
            instance=process.instance,
            status=0,
        )
        log.append_event(job, event, client=client)


def assert_ended(client: Client, driver: Driver, job: int, reason: str) -> None:
    """The job failed for that reason, stops its processes, and gives its slots back when they have ended."""
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert (row.state, row.reason) == (JobState.FAILED, reason)
    end_processes(client, job)
    coordinate(job, driver.around())
    copy_all(client)
    assert not Reservation.objects.exists()
    assert client.get(names.state(job)) is None


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record.msg["exc_info"] for record in caplog.records if "an internal error ends" in str(record.msg)]


def test_a_detector_that_throws_ends_its_job_and_is_logged_once(
    client: Client,
    driver: Driver,
    job: int,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    iterate(client, job, story)

    def throw(*_: object) -> None:
        raise ZeroDivisionError("speed of w1")

    monkeypatch.setattr(Evidence, "observe", throw)
    coordinate(job, driver.around())
    assert_ended(client, driver, job, "WorkerMessageReceived could not be handled: ZeroDivisionError: speed of w1")
    assert [str(error) for error in tracebacks(caplog)] == ["speed of w1"]


def test_a_batching_policy_that_throws_pauses_its_job_and_is_logged_once(
    client: Client,
    driver: Driver,
    job: int,
    story: Story,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    iterate(client, job, story)

    def throw(*_: object) -> None:
        raise ZeroDivisionError("speed of w1")

    monkeypatch.setattr(Uniform, "decide", throw)
    coordinate(job, driver.around())
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert row.state == JobState.PAUSED
    assert row.reason.startswith(
        "batching uniform failed: ZeroDivisionError: speed of w1; choose another batching policy"
    )
    assert [str(error) for error in tracebacks(caplog)] == ["speed of w1"]


@pytest.fixture
def broken_executor(job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the job runs, one that cannot carry out orders, and anything else as before."""

    def effects_of(facts: JobFacts, commands: Sequence[AnyCommand], *parents: Mapping[str, str]) -> Effects:
        if any(isinstance(command, IssueOrders) for command in commands):
            raise OverflowError("watermark")
        return executor.effects_of(facts, commands, *parents)

    monkeypatch.setattr(engines, "effects_of", effects_of)


@pytest.mark.usefixtures("broken_executor")
def test_an_executor_that_throws_ends_its_job_and_is_logged_once(
    client: Client, driver: Driver, job: int, story: Story, caplog: pytest.LogCaptureFixture
) -> None:
    iterate(client, job, story)
    coordinate(job, driver.around())
    (fault,) = [entry.event for entry in logged(client, job) if isinstance(entry.event, EngineFailed)]
    assert fault.reason == "OverflowError: watermark"
    assert_ended(client, driver, job, f"the control plane failed at {fault.entry}: OverflowError: watermark")
    assert [str(error) for error in tracebacks(caplog)] == ["watermark"]


@pytest.mark.usefixtures("broken_executor")
@pytest.mark.parametrize("point", ["coordinator.handled", "coordinator.committed"])
def test_a_fault_ends_the_job_where_a_coordinator_dies_of_something_else(
    client: Client, driver: Driver, job: int, story: Story, point: str
) -> None:
    iterate(client, job, story)
    with armed(point, die), pytest.raises(Died):
        coordinate(job, driver.around())
    client.delete(names.state(job))  # as when "held" expires
    driver.engines = driver.fresh_engines()
    coordinate(job, driver.around())
    copy_all(client)
    row = Job.objects.get(pk=job)
    assert (row.state, row.reason.partition(": ")[2]) == (JobState.FAILED, "OverflowError: watermark")
    moves = [command for _, _, command in answered(client, job) if getattr(command, "state", "") == "failed"]
    assert len(moves) == 1


@pytest.mark.usefixtures("broken_executor")
def test_a_fault_leaves_other_jobs_alone(client: Client, driver: Driver, job: int, story: Story) -> None:
    iterate(client, job, story)
    other = Job.objects.create(name="other", spec=spec_document(story.spec), submitted_by=User.objects.get())
    submit(client, other.pk, story.spec)
    coordinate(job, driver.around())
    coordinate(other.pk, driver.around())
    copy_all(client)
    assert list(Job.objects.order_by("id").values_list("state", flat=True)) == ["failed", "submitted"]


def test_a_snapshot_that_cannot_be_written_ends_the_job(
    client: Client, driver: Driver, job: int, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.runtime.snapshots.SnapshotPace.due", lambda _: True)
    monkeypatch.setattr("controlplane.core.context.Policies.dump", lambda _: 1 / 0)
    iterate(client, job, story)
    coordinate(job, driver.around())
    faults = [entry.event for entry in logged(client, job) if isinstance(entry.event, EngineFailed)]
    assert [fault.reason for fault in faults] == ["ZeroDivisionError: division by zero"]
    assert_ended(client, driver, job, f"the control plane failed at {faults[0].entry}: {faults[0].reason}")


class _Throwing(CountingEngine):
    """Throws at every report, past its own net."""

    def handle(self, entry: Entry) -> list[AnyCommand]:
        answer = super().handle(entry)
        if answer:
            raise ArithmeticError("beyond the net")
        return answer


class _ThrowingEngines:
    def new(self, job: int) -> AnyEngine:
        return _Throwing(State())

    def restore(self, snapshot: bytes) -> AnyEngine:
        raise ValueError("a policy cannot read its state")


def test_an_unhandled_error_of_the_engine_is_reported_and_its_log_is_read_further(
    client: Client, driver: Driver
) -> None:
    driver.kind = _ThrowingEngines()
    driver.engines = driver.fresh_engines()
    submit(client)
    broke = log.append_event(7, report(2), client=client)
    log.append_event(7, report(3), client=client)
    coordinate(7, driver.around())
    entries = logged(client)
    assert entries[3].event == EngineFailed(entry=broke, reason="ArithmeticError: beyond the net")
    assert client.hget(names.engine(7), "cursor") == entries[-1].id.encode()
    assert len(entries) == 4


def test_a_snapshot_that_cannot_be_read_is_replaced_by_the_log(client: Client, driver: Driver) -> None:
    driver.kind = _ThrowingEngines()
    driver.engines = driver.fresh_engines()
    submit(client)
    client.hset(names.engine(7), "snapshot", b"old")
    coordinate(7, driver.around())
    assert client.hget(names.engine(7), "cursor") == logged(client)[-1].id.encode()
