"""Copies the streams of every live job to the database: the one writer of history.

Each job's batch is one short transaction that also moves the job's cursors, on condition that they stand where they
were read: a second writer, or a batch that was written before a crash, changes nothing. Commands come before events,
since a report's process row is made by a command that was given long before it. A job whose batch cannot be written is
tried again less and less often, while the others go on.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event as Flag
from typing import Final

import structlog
from django.db import DatabaseError, InterfaceError, transaction

from controlplane.core.events import Entry
from controlplane.core.states import JOB_OVER
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Answer, apply_answers, apply_progress
from controlplane.runtime import log, names, stored_snapshots, ticks
from controlplane.runtime.durable import publish_numbers
from controlplane.runtime.executor import decode_commands
from controlplane.runtime.faults import reach
from controlplane.runtime.folds import Folds
from controlplane.runtime.loglines import LineWriter
from controlplane.runtime.redis import Client, block_ms
from controlplane.runtime.streams import Position, retire, trim
from controlplane.runtime.troubles import end_trouble, explained, is_out_of_reach, note_trouble
from controlplane.telemetry.models import Cursor
from controlplane.telemetry.numbers import advanced, record_numbers, recorded_numbers
from controlplane.telemetry.projections import Logged, incarnations, record_events

BATCH: Final = 400
"""Entries of one stream per transaction, which keeps it under 50 ms."""

ROUND_S: Final = 0.15
"""Shortest time between two rounds: what comes in between is written together."""

WAIT_S: Final = 0.5
"""How long to wait for news before looking whether there are new jobs."""

HOUSEKEEPING_S: Final = 1.0
PAUSE_S: Final = 1.0
"""Between two attempts to write to a database that takes nothing."""

SHORTEST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 60.0

Read = list[tuple[bytes, dict[bytes, bytes]]]

logger = structlog.get_logger(__name__)


class StaleCursor(RuntimeError):
    """Somebody else has moved a cursor: nothing was written."""


@dataclass(slots=True, kw_only=True)
class Copied:
    """How far one job has been copied, and what a page would be told of it."""

    position: Position
    incarnation: int
    state: str
    numbers: dict[str, int]
    """By process instance: the message number up to which all is in the database."""
    unpublished: dict[str, int] = field(default_factory=dict)
    moved: bool = False
    fleet: bool = False
    snapshots: stored_snapshots.Transfer = field(default_factory=stored_snapshots.Transfer)


@dataclass(slots=True, kw_only=True)
class Rest:
    """For how long a job is left alone whose batch could not be written: longer with each attempt."""

    pause_s: float
    until: float


class Ingest:
    """Copies until told to stop. Whoever runs it holds the one lease."""

    def __init__(self, client: Client, stopping: Flag, *, wait_s: float = WAIT_S) -> None:
        self._client, self._stopping, self._wait_s = client, stopping, wait_s
        self._jobs: dict[int, Copied] = {}
        self._rests: dict[int, Rest] = {}
        self._folds = Folds()
        self._lines = LineWriter(client)
        self._looked = 0.0
        self.behind = False
        """Whether the last round left something undone."""

    def step(self) -> bool:
        """One round over all live jobs; whether anything was copied."""
        self._look()
        if not self._jobs:
            self._write_lines()
            self._stopping.wait(self._wait_s)
            return False
        read = self._read()
        moved = [job for job, streams in read.items() if self._copy(job, *streams)]
        self._tell()
        folded = self._fold()
        self._write_lines()
        self.behind = folded or any(len(entries) >= BATCH for streams in read.values() for entries in streams)
        return folded or bool(moved)

    def _look(self) -> None:
        """Now and then: find new jobs, trim streams, and forget jobs that are over and copied whole."""
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
            over = copied.state in JOB_OVER and self._folds.settled(job)
            if over and retire(self._client, job, copied.position):
                del self._jobs[job]
                self._folds.forget(job)
                stored_snapshots.forget(job)
            else:
                trim(self._client, job, copied.position)
        reach("ingest.trimmed")

    def _meet(self, job: int) -> None:
        try:
            self._jobs[job] = copied_so_far(job)
            self._folds.meet(job, speakers=len(self._jobs[job].numbers))
        except Exception as error:  # the job has no row, say
            if is_out_of_reach(error):
                raise
            self._leave_alone(job)

    def _leave_alone(self, job: int) -> None:
        """Note what just went wrong with this job, and go on with the others."""
        before = self._rests.get(job)
        pause_s = min(LONGEST_REST_S, before.pause_s * 2) if before else SHORTEST_REST_S
        self._rests[job] = Rest(pause_s=pause_s, until=time.monotonic() + pause_s)
        logger.exception("history of a job stands still", job=job, next_attempt_s=pause_s)

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
        wait_s = 0.0 if self.behind else self._wait_s
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
        """Write one job's batch; a job whose cursor somebody else moved is read anew, one that fails rests."""
        if len(commands) >= BATCH:
            events = []  # reports may rely on rows that commands not yet read will make
        copied = self._jobs[job]
        copied.snapshots.look(self._client, job)
        try:
            reports = write_batch(job, copied, commands, events)
        except StaleCursor as stale:
            logger.warning("cursor moved by somebody else", job=job, why=str(stale))
            self._jobs.pop(job)
            self._meet(job)
            return False
        except Exception as error:  # whatever is wrong with this job must not stop the history of the others
            if is_out_of_reach(error):
                raise
            self._leave_alone(job)
            return False
        self._rests.pop(job, None)
        self._folds.add(job, reports, speakers=len(copied.numbers))
        reach("ingest.committed")
        return True

    def _fold(self) -> bool:
        """Do one piece of folding, if any is due; whether it was."""
        try:
            return self._folds.step() is not None
        except Exception as error:  # copying goes on; the chunks are tried again with the next reports
            if is_out_of_reach(error):
                raise
            logger.exception("reports could not be folded")
            return False

    def _write_lines(self) -> None:
        """Behind everything else: what processes wrote."""
        if moved := self._lines.step():
            ticks.publish(self._client, jobs=moved)

    def _tell(self) -> None:
        for job, copied in self._jobs.items():
            publish_numbers(self._client, job, copied.unpublished)
            copied.unpublished = {}
        moved = {job: copied.state for job, copied in self._jobs.items() if copied.moved}
        fleet = any(copied.fleet for copied in self._jobs.values())
        if moved:
            ticks.publish(self._client, jobs=moved, fleet=fleet)
        for copied in self._jobs.values():
            copied.moved = copied.fleet = False


def run_ingest(client: Client, stopping: Flag, renew: Callable[[], bool], *, pause_s: float = PAUSE_S) -> None:
    """Copy until told to stop or the lease is lost; a database that takes nothing is tried again until it does."""
    ingest = Ingest(client, stopping)
    while not stopping.is_set() and renew():
        began = time.monotonic()
        try:
            ingest.step()
        except (DatabaseError, InterfaceError) as error:
            if not is_out_of_reach(error):
                raise
            _stand_still(client, error)
            stopping.wait(pause_s)
            continue
        if end_trouble(client):
            logger.warning("history goes on")
            ticks.publish(client, fleet=True)
        if not ingest.behind:
            stopping.wait(max(0.0, ROUND_S - (time.monotonic() - began)))


def _stand_still(client: Client, error: Exception) -> None:
    """Say so, once in the logs and on the pages; what was read and not written is read again."""
    if note_trouble(client, error):
        logger.error("history stands still", why=explained(error))
        ticks.publish(client, fleet=True)


def copied_so_far(job: int) -> Copied:
    """Where the job's cursors stand; they are made with its first batch."""
    rows = {row.stream: row for row in Cursor.objects.filter(job_id=job)}
    for stream in {"events", "commands"} - rows.keys():
        rows[stream], _ = Cursor.objects.get_or_create(job_id=job, stream=stream)
    position = Position(events=rows["events"].position, commands=rows["commands"].position)
    state = Job.objects.values_list("state", flat=True).get(pk=job)
    numbers = recorded_numbers(job)
    return Copied(
        position=position,
        incarnation=rows["events"].incarnation,
        state=state,
        numbers=numbers,
        unpublished=dict(numbers),
    )


def write_batch(job: int, copied: Copied, commands: Read, events: Read) -> int:
    """Write one batch and move the cursors, all or nothing; then move ``copied`` along. How many reports were new.

    Raises:
        StaleCursor: if a cursor is not where ``copied`` has it; nothing was written.
    """
    answers = [_answer(fields) for _, fields in commands]
    logged = [_logged(stream_id, fields) for stream_id, fields in events]
    after = Position(
        events=logged[-1].entry.id if logged else copied.position.events,
        commands=commands[-1][0].decode() if commands else copied.position.commands,
    )
    reports = 0
    incarnation = max(incarnations(copied.incarnation, logged), default=copied.incarnation)
    risen = advanced(copied.numbers, (item.entry.event for item in logged))
    with transaction.atomic():
        last = max([copied.incarnation, *(answer.incarnation for answer in answers)])
        _move_cursor(job, "commands", copied.position.commands, after.commands, last)
        _move_cursor(job, "events", copied.position.events, after.events, incarnation)
        released = apply_answers(job, answers) if answers else False
        if logged:
            progress = record_events(job, copied.incarnation, logged)
            apply_progress(job, progress)
            reports = progress.reports
            record_numbers(job, risen)
        state = Job.objects.values_list("state", flat=True).get(pk=job)
        if (snapshot := copied.snapshots.due(after)) is not None:
            stored_snapshots.store(job, snapshot)
        reach("ingest.written")
    copied.position, copied.incarnation, copied.state, copied.moved = after, incarnation, state, True
    if snapshot is not None:
        copied.snapshots.note_stored(snapshot)
    copied.fleet |= released
    copied.numbers |= risen
    copied.unpublished |= risen
    return reports


def _move_cursor(job: int, stream: str, old: str, new: str, incarnation: int) -> None:
    if old == new:
        return
    cursor = Cursor.objects.filter(job_id=job, stream=stream, position=old)
    if cursor.update(position=new, incarnation=incarnation) != 1:
        raise StaleCursor(f"job {job}: cursor of {stream} is no longer at {old}")


def _answer(fields: dict[bytes, bytes]) -> Answer:
    return Answer(
        incarnation=int(fields.get(b"incarnation", 0)),
        sequence=int(fields[b"sequence"]),
        commands=decode_commands(fields[b"c"]),
    )


def _logged(stream_id: bytes, fields: dict[bytes, bytes]) -> Logged:
    payload = fields[b"e"]
    entry = stream_id.decode()
    return Logged(entry=Entry(id=entry, event=log.read_event(entry, payload)), payload=payload)
