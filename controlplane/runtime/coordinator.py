"""Coordinates one job: takes its lease, then drains its log through the engine and lingers for more.

Each read is answered by one commit. Whatever else happens (a crash at any line), the log holds what was seen and the
command stream what was answered, and the next holder goes on from there. A fault of ours ends the one job that it
struck: nothing that comes up while an entry is answered stops the reading of the log.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import Final

import structlog

from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.events import Entry, TimePassed
from controlplane.runtime import log, names, presence, training
from controlplane.runtime.engines import READ_COUNT, Engines
from controlplane.runtime.faults import reach
from controlplane.runtime.lease import Lease, LeaseLost, Position
from controlplane.runtime.redis import Client
from controlplane.runtime.snapshots import SnapshotPace

GLANCE_S: Final = 0.1
"""How often a lingering holder looks whether others wait for its thread, or it is told to stop."""

TURN_S: Final = 1.0
"""How long a busy job may keep its thread while others wait for one."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a coordinator has around it: connections, engines, and who else wants its thread."""

    client: Client
    engines: Engines
    queue_is_empty: Callable[[], bool]
    enqueue: Callable[[int], None]
    stopping: Flag
    linger_s: float = names.LINGER_S


def coordinate(job: int, around: Surroundings) -> None:
    """Coordinate the job until it has no news, or somebody else has it."""
    lease = Lease.take(around.client, job)
    if lease is None:
        return
    reach("coordinator.taken")
    try:
        holding = Holding(lease, around)
        reach("coordinator.restored")
        while holding.step():
            pass
    except LeaseLost as lost:
        logger.warning("lease lost", job=job, why=str(lost))


class Holding:
    """One holding of one job, from its lease to its letting go."""

    def __init__(self, lease: Lease, around: Surroundings) -> None:
        self._lease, self._around = lease, around
        self._running = around.engines.take(around.client, lease.job, lease.cursor)
        self._pace = SnapshotPace()
        self._began = self._news = time.monotonic()
        self._glanced = 0.0
        self._others_wait = False

    def step(self) -> bool:
        """Read and answer, or let time pass, or let go; whether there may be more."""
        entries = self._read()
        if entries:
            reach("coordinator.read")
            self._answer(entries)
            self._news = time.monotonic()
            return not self._turn_is_over()
        self._lease.renew()
        if self._tick():
            return True
        reach("coordinator.drained")
        return self._may_linger() or not self._let_go()

    def _read(self) -> list[Entry]:
        wait_s = min(GLANCE_S, self._seconds_to_deadline()) if self._may_linger() else 0.0
        return log.read_entries(
            self._around.client, self._lease.job, after=self._lease.cursor, count=READ_COUNT, block_s=wait_s
        )

    def _answer(self, entries: list[Entry]) -> None:
        """Hand every entry to the engine, and do what follows in one step."""
        running = self._running
        commands = [command for entry in entries for command in running.handle(entry)]
        engine = running.engine
        reach("coordinator.handled")
        self._pace.entries += len(entries)
        effects, snapshot = running.effects(commands), self._snapshot()
        self._tell_fault()
        self._lease.commit(
            effects,
            Position(cursor=entries[-1].id, deadline_ms=engine.deadline_ms, over=engine.over),
            first=entries[0].id,
            version=ENGINE_VERSION,
            snapshot=snapshot,
        )
        reach("coordinator.committed")
        training.request_fits(self._lease.job, commands)

    def _snapshot(self) -> bytes:
        """One, where it is due; without one the log is replayed from further back."""
        engine = self._running.engine
        if not (engine.over or self._pace.due()):
            return b""
        try:
            return self._pace.make(engine.snapshot)
        except Exception as error:
            self._running.note_fault(engine.cursor, error)
            return b""

    def _tell_fault(self) -> None:
        """Append a fault to the log once, which ends the job.

        That comes before the commit: a crash in between has it told twice, and the engine takes it once.
        """
        running = self._running
        if running.fault is not None and not running.told:
            with suppress(log.LogClosed):
                log.append_event(self._lease.job, running.fault, client=self._around.client)
            running.told = True

    def _tick(self) -> bool:
        """Append that time has passed, if the engine's deadline has come."""
        deadline = self._running.engine.deadline_ms
        if deadline is None or self._lease.now_ms < deadline:
            return False
        seen = presence.last_seen(self._around.client, self._lease.job)
        self._lease.tick(deadline, log.encode_event(TimePassed(seen=seen)))
        reach("coordinator.ticked")
        return True

    def _seconds_to_deadline(self) -> float:
        deadline = self._running.engine.deadline_ms
        return GLANCE_S if deadline is None else max(0.001, (deadline - self._lease.now_ms) / 1000)

    def _may_linger(self) -> bool:
        """Whether to wait for more: not where others wait for this thread, at shutdown, or when nothing will follow."""
        if self._around.stopping.is_set() or self._running.engine.over:
            return False
        return time.monotonic() - self._news < self._around.linger_s and not self._glance()

    def _turn_is_over(self) -> bool:
        """Let a busy job queue up again where others wait, or at shutdown."""
        if not self._around.stopping.is_set() and (time.monotonic() - self._began < TURN_S or not self._glance()):
            return False
        self._lease.release("queued")
        self._around.engines.keep(self._running)
        self._around.enqueue(self._lease.job)
        return True

    def _glance(self) -> bool:
        """Whether other jobs wait for a thread, as of a moment ago."""
        now = time.monotonic()
        if now - self._glanced >= GLANCE_S:
            self._glanced = now
            self._others_wait = not self._around.queue_is_empty()
        return self._others_wait

    def _let_go(self) -> bool:
        if not self._lease.release("idle"):
            return False
        self._around.engines.keep(self._running)
        reach("coordinator.idle")
        return True
