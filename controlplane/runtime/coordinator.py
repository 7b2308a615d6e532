"""Coordinates one job: takes its lease, processes its log with the engine, and waits for more entries.

Each read is answered by one commit. After a crash at any line, the log holds the events and the command stream the
answers, and the next holder continues from there. A bug that one job triggers fails that job; an exception while an
entry is processed never stops the reading of the log.
"""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import Final

import structlog
from django.db import connections

from controlplane.core.engine import ENGINE_VERSION
from controlplane.core.events import ControlPlaneResumed, Entry, TimePassed
from controlplane.runtime import autopilot, log, names, presence, redis, scaling, tracing, training
from controlplane.runtime.downtime import SILENCE_S
from controlplane.runtime.engines import READ_COUNT, Engines, Running
from controlplane.runtime.faults import reach
from controlplane.runtime.gathering import Gathering
from controlplane.runtime.lease import Lease, LeaseLost, Position
from controlplane.runtime.places import Places
from controlplane.runtime.recovery import bring_up
from controlplane.runtime.redis import Client
from controlplane.runtime.snapshots import SnapshotPace
from controlplane.runtime.streams import after

GLANCE_S: Final = 0.25
"""How often a lingering holder checks whether other jobs wait for its thread, or whether to stop."""

TURN_S: Final = 1.0
"""How long a busy job may keep its thread while others wait for one."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The environment of a coordinator: connections, engines, and whether other jobs need its thread."""

    client: Client
    engines: Engines
    queue_is_empty: Callable[[], bool]
    enqueue: Callable[[int], None]
    stopping: Flag
    places: Places
    """Limit of waiting coordinators: below the number of threads, so that one is free for a job with new entries."""
    linger_s: float = names.LINGER_S


def coordinate(job: int, around: Surroundings) -> None:
    """Coordinate the job until its log has no more entries, or another process holds it."""
    lease = Lease.take(around.client, job)
    if lease is None:
        return
    reach("coordinator.taken")
    try:
        running = bring_up(around.client, lease, around.engines)
        _close_database()
        if running is None:
            return
        holding = Holding(lease, running, around)
        reach("coordinator.restored")
        with closing(holding):
            while holding.step():
                pass
    except LeaseLost as lost:
        logger.warning("lease lost", job=job, why=str(lost))


def _close_database() -> None:
    """A coordinator may hold its job for hours, and needs no database as long as it does."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class Holding:
    """One job while this process holds its lease."""

    def __init__(self, lease: Lease, running: Running, around: Surroundings) -> None:
        self._lease, self._running, self._around = lease, running, around
        self._pace, self._gathering = SnapshotPace(), Gathering()
        self._began = self._last_entry_at = time.monotonic()
        self._glanced = 0.0
        self._others_wait = False
        self._excused = 0.0
        self._reads_ahead = False
        """Whether the next read was sent along with the last commit."""
        self._has_place = False

    def close(self) -> None:
        """Leave the connection without an unread reply."""
        if self._reads_ahead:
            redis.forget(self._around.client)
        if self._has_place:
            self._around.places.release()

    def step(self) -> bool:
        """Read and answer, or let time pass, or release the job; whether there may be more."""
        entries = self._read()
        if entries:
            reach("coordinator.read")
            self._last_entry_at = time.monotonic()
            is_last = self._turn_is_over()
            self._answer(entries, is_last=is_last)
            if is_last:
                self._pass_on()
            return not is_last
        self._lease.renew()
        if self._tick():
            return True
        reach("coordinator.drained")
        return self._may_linger() or not self._let_go()

    def _read(self) -> list[Entry]:
        if not self._reads_ahead:
            redis.send(self._around.client, self._next_read(self._lease.cursor))
        self._reads_ahead = False
        return log.receive_entries(self._around.client)

    def _next_read(self, after: str) -> bytes:
        wait_s = min(GLANCE_S, self._seconds_to_deadline()) if self._may_linger() else 0.0
        return log.pack_read(self._lease.job, after=after, count=READ_COUNT, block_s=wait_s)

    def _answer(self, entries: list[Entry], *, is_last: bool) -> None:
        """Pass every entry to the engine, and commit the effects in one step, together with the next read.

        The next read waits if several reports are missing before anything can be decided.
        """
        running, turn = self._running, tracing.turn(self._lease.job)
        if turn is None:
            commands = [command for entry in entries for command in running.handle(entry)]
        else:
            commands = turn.handle(entries, running.handle)
        engine = running.engine
        reach("coordinator.handled")
        self._pace.entries += len(entries)
        effects, snapshot = running.effects(commands, turn.parents if turn else {}), self._snapshot()
        if after(running.quiet_until, entries[-1].id):
            effects.frames = b""
        self._log_fault()
        cursor = entries[-1].id
        may_wait = not is_last and len(entries) < READ_COUNT  # after a full read more are there
        pause_s = self._gathering.pause_s(engine.open_ledger(), time.monotonic()) if may_wait else 0.0
        self._reads_ahead = not is_last and not pause_s
        then = self._next_read(cursor) if self._reads_ahead else b""
        self._lease.commit(
            effects,
            Position(cursor=cursor, deadline_ms=engine.deadline_ms, over=engine.over),
            first=entries[0].id,
            version=ENGINE_VERSION,
            snapshot=snapshot,
            then=then,
        )
        if turn is not None:
            turn.committed()
        reach("coordinator.committed")
        training.request_fits(self._lease.job, commands)
        autopilot.request_plays(self._lease.job, commands)
        scaling.request_slots(self._lease.job, commands)
        if pause_s:
            self._around.stopping.wait(pause_s)

    def _snapshot(self) -> bytes:
        """A snapshot if one is due, otherwise empty."""
        engine = self._running.engine
        if not (engine.over or self._pace.due()):
            return b""
        try:
            return self._pace.make(engine.snapshot)
        except Exception as error:
            self._running.note_fault(engine.cursor, error)
            return b""

    def _log_fault(self) -> None:
        """Append a fault to the log once, which ends the job.

        That comes before the commit: a crash in between logs it twice, and the engine accepts it once.
        """
        running = self._running
        if running.fault is not None and not running.is_logged:
            with suppress(log.LogClosed):
                log.append_event(self._lease.job, running.fault, client=self._around.client)
            running.is_logged = True

    def _tick(self) -> bool:
        """Append that time has passed, if the engine's deadline has expired."""
        deadline = self._running.engine.deadline_ms
        if deadline is None or self._lease.now_ms < deadline:
            return False
        if not self._running.engine.needs_heartbeats(self._lease.now_ms):
            self._lease.tick(deadline, log.encode_event(TimePassed(is_look=True)))
            return True
        if self._excuses_silence():
            return True
        seen = presence.last_seen(self._around.client, self._lease.job)
        away = presence.agents_away(self._around.client, self._lease.now_ms)
        self._lease.tick(deadline, log.encode_event(TimePassed(seen=seen, away=away)))
        reach("coordinator.ticked")
        return True

    def _excuses_silence(self) -> bool:
        """While a gateway is missing or overloaded, processes without heartbeats are not lost: log that before a
        timeout, now and then.

        Checked before every decision: a gateway may have disappeared since the last one.
        """
        if time.monotonic() - self._excused < SILENCE_S:
            return False
        if not (why := presence.gateway_trouble(self._around.client)):
            return False
        self._excused = time.monotonic()
        with suppress(log.LogClosed):
            log.append_event(self._lease.job, ControlPlaneResumed(who=why), client=self._around.client)
        return True

    def _seconds_to_deadline(self) -> float:
        deadline = self._running.engine.deadline_ms
        return GLANCE_S if deadline is None else max(0.001, (deadline - self._lease.now_ms) / 1000)

    def _may_linger(self) -> bool:
        """Whether to wait for more entries: not if other jobs need this thread, at shutdown, or if the job is over."""
        if self._around.stopping.is_set() or self._running.engine.over:
            return False
        if time.monotonic() - self._last_entry_at >= self._around.linger_s or self._glance():
            return False
        self._has_place = self._around.places.hold(self._has_place)
        return self._has_place

    def _turn_is_over(self) -> bool:
        """Whether a busy job should release the thread and queue again: if others wait, or at shutdown."""
        return self._around.stopping.is_set() or (time.monotonic() - self._began >= TURN_S and self._glance())

    def _pass_on(self) -> None:
        self._lease.release("queued")
        self._around.engines.keep(self._running)
        self._around.enqueue(self._lease.job)

    def _glance(self) -> bool:
        """Whether other jobs wait for a thread; checked at most every ``GLANCE_S``."""
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
