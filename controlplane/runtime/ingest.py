"""Copies the streams of every live job to the database: the only writer of history.

Each job's batch is one short transaction that also moves the job's cursors, conditional on their previous position: a
second writer, or a batch that was written before a crash, changes nothing. An entry that cannot be written becomes a
dead letter and ends its job (``dead_letters``). After other errors a job is retried with a growing delay, and the
others continue.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from threading import Event as Flag
from typing import Final

import structlog
from django.db import DatabaseError, InterfaceError

from controlplane.core.states import JOB_OVER
from controlplane.runtime import dead_letters, names, snapshots, ticks
from controlplane.runtime.batches import Copied, Read, StaleCursor, copied_so_far, write_batch
from controlplane.runtime.durable import publish_numbers
from controlplane.runtime.faults import reach
from controlplane.runtime.folds import Folds
from controlplane.runtime.ingest_health import clear_ingest_error, explained, is_out_of_reach, note_ingest_error
from controlplane.runtime.job_failures import forget, isolated_step, note
from controlplane.runtime.loglines import LineWriter
from controlplane.runtime.redis import Client, block_ms
from controlplane.runtime.streams import retire, trim
from controlplane.telemetry.models import DeadLetter

BATCH: Final = 400
"""Entries of one stream per transaction, which keeps it under 50 ms."""

ROUND_S: Final = 0.15
"""Time between two rounds, at least; entries that arrive in between are written together."""

LONGEST_ROUND_S: Final = 0.5
MOST_BUSY: Final = 0.1
"""Rounds follow one another so far apart that they take this part of the time: each job of a round costs a transaction,
whether one of its reports is new or fifty. No further than ``LONGEST_ROUND_S``, and not where entries are left."""

WAIT_S: Final = 0.5
"""How long to wait for entries before looking for new jobs."""

HOUSEKEEPING_S: Final = 1.0
PAUSE_S: Final = 1.0
"""Interval between two attempts to write to an unavailable database."""

SHORTEST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0

logger = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Rest:
    """The delay before the next attempt to write a job's failed batch; it grows with each attempt."""

    pause_s: float
    until: float


class Ingest:
    """The copying loop; only one process, the holder of the lease, runs it."""

    def __init__(self, client: Client, stopping: Flag, *, wait_s: float = WAIT_S) -> None:
        self._client, self._stopping, self._wait_s = client, stopping, wait_s
        self._jobs: dict[int, Copied] = {}
        self._rests: dict[int, Rest] = {}
        self._doomed: dict[int, DeadLetter] = {}
        """Jobs with a dead letter that their engines should end."""
        self._folds = Folds()
        self._lines = LineWriter(client)
        self._looked = 0.0
        self.behind = False
        """Whether the last round left entries behind."""
        self.round_s = ROUND_S
        """Time from the beginning of the last round until the next one is due."""

    def step(self) -> bool:
        """One round over all live jobs; returns whether anything was copied.

        Folding fills the time until the next round is due: it makes no round shorter, or batches would be small.
        """
        began = time.monotonic()
        self._look()
        if not self._jobs:
            self._write_lines()
            self._stopping.wait(self._wait_s)
            return False
        read = self._read()
        read_at = time.monotonic()
        try:
            moved = [job for job, streams in read.items() if self._copy(job, *streams)]
            for job, letter in list(self._doomed.items()):
                with isolated_step("ending jobs", job, self._client):
                    dead_letters.end_job(self._client, job, letter)
                    del self._doomed[job]
        except Exception:  # the database went away: what was written before is durable
            self._publish()
            raise
        self._publish()
        self.round_s = min(LONGEST_ROUND_S, max(ROUND_S, (time.monotonic() - read_at) / MOST_BUSY))
        self.behind = any(len(entries) >= BATCH for streams in read.values() for entries in streams)
        folded = self._fold()
        while folded and not self.behind and time.monotonic() - began < self.round_s and self._fold():
            pass
        self._write_lines()
        return folded or bool(moved)

    def _look(self) -> None:
        """Periodically: find new jobs, trim streams, and remove jobs that are over and completely copied."""
        now = time.monotonic()
        if now - self._looked < HOUSEKEEPING_S:
            return
        self._looked = now
        live = {int(job) for job in self._client.smembers(names.LIVE_JOBS)}
        self._rests = {job: rest for job, rest in self._rests.items() if job in live}
        self._jobs = {job: copied for job, copied in self._jobs.items() if job in live}
        for job in sorted(live - self._jobs.keys()):
            if not self._rests_now(job):
                self._meet(job)
        for job, copied in list(self._jobs.items()):
            with isolated_step("trimming logs", job, self._client):
                self._trim(job, copied)
        reach("ingest.trimmed")

    def _trim(self, job: int, copied: Copied) -> None:
        over = copied.state in JOB_OVER and self._folds.settled(job)
        if over and retire(self._client, job, copied.position):
            del self._jobs[job]
            self._folds.forget(job)
            snapshots.forget(job)
        else:
            trim(self._client, job, copied.position)

    def _meet(self, job: int) -> None:
        try:
            self._jobs[job] = copied_so_far(job)
            self._folds.add_job(job, senders=len(self._jobs[job].numbers))
            if (letter := dead_letters.first_of(job)) is not None:
                self._doomed[job] = letter
        except Exception as error:  # the job has no row, say
            if is_out_of_reach(error):
                raise
            self._back_off(job, error)

    def _back_off(self, job: int, error: Exception) -> None:
        """Record the current error of this job, and continue with the others."""
        note(self._client, "copying", job, error)
        before = self._rests.get(job)
        pause_s = min(LONGEST_REST_S, before.pause_s * 2) if before else SHORTEST_REST_S
        self._rests[job] = Rest(pause_s=pause_s, until=time.monotonic() + pause_s)
        logger.exception("ingest of a job stalled", job=job, next_attempt_s=pause_s)

    def _rests_now(self, job: int) -> bool:
        rest = self._rests.get(job)
        return rest is not None and time.monotonic() < rest.until

    def _read(self) -> dict[int, tuple[Read, Read]]:
        """New entries of every job that has some: (commands, events)."""
        places: dict[str, tuple[int, int]] = {}
        after: list[str] = []
        for job, copied in self._jobs.items():
            if self._rests_now(job):
                continue
            for place, (name, position) in enumerate(
                ((names.commands(job), copied.position.commands), (names.events(job), copied.position.events))
            ):
                places[name] = job, place
                after.append(position)
        if not places:
            self._stopping.wait(self._wait_s)
            return {}
        wait_s = 0.0 if self.behind or self._folds.next_job() is not None else self._wait_s
        reply = self._client.execute_command(
            *("XREAD", "COUNT", BATCH, "BLOCK", block_ms(wait_s), "STREAMS"), *places, *after
        )
        found: dict[int, tuple[Read, Read]] = {}
        for name, entries in reply or ():
            job, place = places[name.decode()]
            found.setdefault(job, ([], []))[place].extend(entries)
        if found:
            reach("ingest.read")
        return found

    def _copy(self, job: int, commands: Read, events: Read) -> bool:
        """Write one job's batch. If another process moved its cursor, the job is read again; failures are retried."""
        if len(commands) >= BATCH:
            events = []  # reports may need rows that unread commands will create
        copied = self._jobs[job]
        copied.snapshot_transfer.look(self._client, job)
        try:
            reports = write_batch(job, copied, commands, events)
        except StaleCursor as stale:
            logger.warning("cursor moved by another process", job=job, why=str(stale))
            self._jobs.pop(job)
            self._meet(job)
            return False
        except Exception as error:  # any error: it must not stop the history of other jobs
            if is_out_of_reach(error):
                raise
            found = self._write_apart(job, commands, events)
            if found is None:
                return False
            reports = found
        if self._rests.pop(job, None) is not None:
            forget(self._client, "copying", job)
        self._folds.add(job, reports, senders=len(copied.numbers))
        reach("ingest.committed")
        return True

    def _write_apart(self, job: int, commands: Read, events: Read) -> int | None:
        """Write a failed batch entry by entry, and end the job after a dead letter; returns the number of reports.

        None if even that failed: the job is retried later.
        """
        try:
            reports, letters = dead_letters.write_apart(job, self._jobs[job], commands, events)
            if letters:
                self._doomed.setdefault(job, letters[0])
        except Exception as error:
            if is_out_of_reach(error):
                raise
            self._back_off(job, error)
            return None
        return reports

    def _fold(self) -> bool:
        """Do one piece of folding, if any is due; returns whether it was."""
        job = self._folds.next_job()
        if job is None:
            return False
        # Copying continues; the chunks are tried again with the next reports.
        with isolated_step("folding", job, self._client):
            self._folds.step()
            return True
        return False

    def _write_lines(self) -> None:
        """Write processes' log lines, with the lowest priority."""
        if moved := self._lines.step():
            ticks.publish(self._client, jobs=moved)

    def _publish(self) -> None:
        """Publish the written positions of all jobs: the durable numbers in one request, and one tick."""
        self._publish_numbers()
        moved = {job: copied.state for job, copied in self._jobs.items() if copied.moved}
        fleet = any(copied.fleet for copied in self._jobs.values())
        if moved:
            ticks.publish(self._client, jobs=moved, fleet=fleet)
        for copied in self._jobs.values():
            copied.moved = copied.fleet = False

    def _publish_numbers(self) -> None:
        replies_of: dict[int, int] = {}
        with self._client.pipeline(transaction=False) as pipeline:
            for job, copied in self._jobs.items():
                with isolated_step("publishing durable numbers", job, self._client):
                    before = len(pipeline)
                    publish_numbers(pipeline, job, copied.unpublished)
                    replies_of[job] = len(pipeline) - before
            replies = iter(pipeline.execute(raise_on_error=False) if len(pipeline) else ())
        for job, count in replies_of.items():
            with isolated_step("publishing durable numbers", job, self._client):
                for error in [reply for reply in islice(replies, count) if isinstance(reply, Exception)]:
                    raise error
                self._jobs[job].unpublished = {}


def run_ingest(client: Client, stopping: Flag, renew: Callable[[], bool], *, pause_s: float = PAUSE_S) -> None:
    """Copy until ``stopping`` is set or the lease is lost; writes to an unavailable database are retried until they
    succeed.
    """
    ingest = Ingest(client, stopping)
    was_stalled = True  # perhaps by the process before this one
    while not stopping.is_set() and renew():
        began = time.monotonic()
        try:
            ingest.step()
        except (DatabaseError, InterfaceError) as error:
            if not is_out_of_reach(error):
                raise
            _report_stalled(client, error)
            was_stalled = True
            stopping.wait(pause_s)
            continue
        if was_stalled and clear_ingest_error(client):
            logger.warning("history continues")
            ticks.publish(client, fleet=True)
        was_stalled = False
        if not ingest.behind:
            stopping.wait(max(0.0, ingest.round_s - (time.monotonic() - began)))


def _report_stalled(client: Client, error: Exception) -> None:
    """Report that ingest is stalled, once, in the logs and on pages; unwritten entries will be read again."""
    if note_ingest_error(client, error):
        logger.error("ingest stalled", why=explained(error))
        ticks.publish(client, fleet=True)
