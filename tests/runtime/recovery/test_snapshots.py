"""Snapshots in the database: a Redis that lost everything costs a replay of what followed the last one, and no more."""

from typing import Any

import msgspec
import pytest

from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.state import SNAPSHOT_VERSION
from controlplane.jobs.models import Job
from controlplane.runtime import names, snapshots
from controlplane.runtime.engines import RealEngines
from controlplane.runtime.ingest import Ingest
from controlplane.runtime.recovery import AFTER_LOSS
from controlplane.runtime.redis import Client
from controlplane.runtime.snapshots import SnapshotPace
from controlplane.runtime.stored_log import stored_entries
from controlplane.telemetry.models import EngineSnapshot
from tests.runtime.recovery.support import (
    Tail,
    copy_all,
    done,
    lose_everything,
    recover,
    replayed_as_stored,
    reports,
    say,
)
from tests.runtime.support import Driver

pytestmark = pytest.mark.django_db(transaction=True)


class _Noting(RealEngines):
    """Notes how many entries its engines have handled."""

    def __init__(self) -> None:
        self.handled = 0

    def new(self, job: int) -> Any:
        return self._noting(super().new(job))

    def restore(self, snapshot: bytes) -> Any:
        return self._noting(super().restore(snapshot))

    def _noting(self, engine: Any) -> Any:
        handle = engine.handle

        def note(entry: Any) -> Any:
            self.handled += 1
            return handle(entry)

        engine.handle = note
        return engine


@pytest.fixture(autouse=True)
def every_commit_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each commit a snapshot, and each of them to the database."""
    monkeypatch.setattr(SnapshotPace, "due", lambda self: True)
    monkeypatch.setattr(snapshots, "PAUSE_S", 0.0)


def handled_by_a_recovery(client: Client, driver: Driver, job: int) -> int:
    """How many entries the engines handle that bring up the job after everything is lost."""
    lose_everything(client)
    driver.kind = _Noting()
    recover(client, driver, job)
    return int(driver.kind.handled)


def engine_after(job: int, start: EngineSnapshot | None) -> tuple[bytes, list[Any]]:
    """The engine that has seen all of the stored log, from the snapshot or from its beginning; and what it gave."""
    engine = RealEngines().restore(bytes(start.data)) if start is not None else RealEngines().new(job)
    commands: list[Any] = []
    for entry in stored_entries(job, after=engine.cursor):
        commands += engine.handle(entry)
    return engine.snapshot(), commands


def test_snapshot_and_tail_decide_as_the_whole_log_does(client: Client, driver: Driver, job: int) -> None:
    kept = []
    for iteration in range(4):
        say(client, driver, job, iteration)
        copy_all(client)
        kept.append(EngineSnapshot.objects.get(job=job))
    say(client, driver, job, *range(4, 40))
    copy_all(client)
    assert [row.cursor for row in kept] == sorted({row.cursor for row in kept}), "each one is newer"
    whole, commands = engine_after(job, None)
    assert kept[-1].sequence < len(commands), "leave was given again"
    for row in kept:
        found, tail = engine_after(job, row)
        assert (found, tail) == (whole, commands[row.sequence :])


def test_after_a_total_loss_only_what_followed_the_snapshot_is_replayed(
    client: Client, driver: Driver, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(client, driver, job, *range(20))
    copy_all(client)
    monkeypatch.setattr(snapshots, "PAUSE_S", 3_600.0)
    say(client, driver, job, 20)
    copy_all(client)
    assert handled_by_a_recovery(client, driver, job) == 3, "two reports, and the beginning of the incarnation"
    say(client, driver, job, 21)
    copy_all(client)
    assert reports() == done(22)
    assert Job.objects.get(pk=job).incarnation == AFTER_LOSS
    assert replayed_as_stored(job)


def test_numbers_of_commands_continue_behind_the_snapshot(client: Client, driver: Driver, job: int) -> None:
    for _ in range(2):
        say(client, driver, job, 0)
        copy_all(client)
        before = int(client.hget(names.engine(job), "sequence"))
        kept = EngineSnapshot.objects.get(job=job)
        assert (kept.sequence, kept.incarnation) == (before, int(client.hget(names.engine(job), "incarnation")))
        lose_everything(client)
        recover(client, driver, job)
        assert int(client.hget(names.engine(job), "sequence")) > before
    copy_all(client)
    assert replayed_as_stored(job)


def test_a_snapshot_of_another_engine_is_ignored_and_the_whole_log_replayed(
    client: Client, driver: Driver, job: int
) -> None:
    say(client, driver, job, *range(5))
    copy_all(client)
    EngineSnapshot.objects.update(version=f"{ENGINE_VERSION}, but another")
    entries = len(list(stored_entries(job, after="0-0")))
    assert handled_by_a_recovery(client, driver, job) == entries + 1
    copy_all(client)
    assert replayed_as_stored(job)


@pytest.mark.parametrize("is_of_an_older_release", [False, True])
def test_a_snapshot_that_cannot_be_read_is_made_good_from_the_log(
    client: Client, driver: Driver, job: int, is_of_an_older_release: bool
) -> None:
    say(client, driver, job, 0)
    copy_all(client)
    kept = EngineSnapshot.objects.get(job=job)
    older = msgspec.msgpack.encode({**msgspec.msgpack.decode(kept.data), "version": SNAPSHOT_VERSION - 1})
    EngineSnapshot.objects.update(data=older if is_of_an_older_release else b"nonsense")
    lose_everything(client)
    recover(client, driver, job)
    say(client, driver, job, 1)
    copy_all(client)
    assert reports() == done(2)
    assert "its snapshot could not be read" in Job.objects.get(pk=job).reason
    assert replayed_as_stored(job)


def test_a_snapshot_waits_until_all_before_it_is_copied(client: Client, driver: Driver, job: int) -> None:
    say(client, driver, job, 0)
    tail, transfer = Tail(client), snapshots.Transfer()
    say(client, driver, job, 1)
    transfer.look(client, job)
    ahead = transfer.waiting
    assert ahead is not None
    behind = snapshots.Position(events="1-0", commands=ahead.commands)
    assert transfer.due(behind) is None
    assert transfer.due(snapshots.Position(events=ahead.cursor, commands="1-0")) is None
    assert transfer.due(snapshots.Position(events=ahead.cursor, commands=ahead.commands)) == ahead
    tail.lose()
    Ingest(client, driver.stopping, wait_s=0.001).step()
    assert EngineSnapshot.objects.get(job=job).cursor < ahead.cursor
