"""One batch of one job: new entries of its two streams, written in one transaction with its cursors.

Commands are written before events, since a report's process row is created by an earlier command.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from django.db import transaction

from controlplane.core.commands import DeliveredOrders
from controlplane.core.events import Entry
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Answer, apply_answers, apply_progress, time_of
from controlplane.jobs.rows import change_row, read_row
from controlplane.runtime import log, snapshots
from controlplane.runtime.executor import decode_decisions
from controlplane.runtime.faults import reach
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.streams import Position
from controlplane.telemetry.models import Cursor
from controlplane.telemetry.numbers import next_messages, record_numbers, recorded_numbers
from controlplane.telemetry.projections import Logged, incarnations, record_events
from controlplane.telemetry.tallies import tally_decisions

Read = list[tuple[bytes, dict[bytes, bytes]]]
"""Entries of a stream, each with its id."""


class StaleCursor(RuntimeError):
    """Another process has moved a cursor: nothing was written."""


@dataclass(slots=True, kw_only=True)
class Copied:
    """The position up to which one job has been copied, and the tick to publish for it."""

    position: Position
    incarnation: int
    state: str
    numbers: dict[str, int]
    """By process instance: the number up to which all its messages are in the database."""
    unpublished: dict[str, int] = field(default_factory=dict)
    moved: bool = False
    fleet: bool = False
    snapshot_transfer: snapshots.Transfer = field(default_factory=snapshots.Transfer)


def copied_so_far(job: int) -> Copied:
    """The job's cursors; they are created with its first batch."""
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
    """Write one batch and its cursors in one transaction, then update ``copied``; returns the number of new reports.

    Raises:
        StaleCursor: if a cursor is not at the position in ``copied``; nothing was written.
    """
    answers = [answer_of(fields) for _, fields in commands]
    logged = [logged_of(stream_id, fields) for stream_id, fields in events]
    after = Position(
        events=logged[-1].entry.id if logged else copied.position.events,
        commands=commands[-1][0].decode() if commands else copied.position.commands,
    )
    reports = 0
    incarnation = max(incarnations(copied.incarnation, logged), default=copied.incarnation)
    are_next, risen = next_messages(copied.numbers, (item.entry.event for item in logged))
    with transaction.atomic():
        last = max([copied.incarnation, *(answer.incarnation for answer in answers)])
        move_cursor(job, "commands", copied.position.commands, after.commands, last)
        move_cursor(job, "events", copied.position.events, after.events, incarnation)
        released = apply_answers(job, answers) if answers else False
        tally_decisions(job, latencies(commands, answers))
        if logged:
            progress = record_events(job, copied.incarnation, logged, are_next)
            apply_progress(job, progress)
            reports = progress.reports
            record_numbers(job, risen)
        state = state_of(job)
        if (snapshot := copied.snapshot_transfer.due(after)) is not None:
            with isolated_step("storing snapshots", job), transaction.atomic():
                snapshots.store(job, snapshot)
        reach("ingest.written")
    passed(copied, after, incarnation, state, risen)
    if snapshot is not None:
        copied.snapshot_transfer.note_stored(snapshot)
    copied.fleet |= released
    return reports


def state_of(job: int) -> str:
    """The job's state.

    Raises:
        Job.DoesNotExist: if the job no longer has a row.
    """
    found = read_row(f"SELECT state FROM {Job._meta.db_table} WHERE id = %s", (job,))
    if found is None:
        raise Job.DoesNotExist(f"job {job}: has no row")
    return str(found[0])


def latencies(entries: Read, answers: Sequence[Answer]) -> Iterator[float]:
    """For each entry of the log that led to orders for workers: the seconds until these were published."""
    for (stream_id, _), answer in zip(entries, answers, strict=True):
        published = time_of(stream_id.decode())
        for cause in {command.cause for command in answer.commands if isinstance(command, DeliveredOrders)}:
            yield max(0.0, (published - time_of(cause)).total_seconds())


def passed(
    copied: Copied, after: Position, incarnation: int, state: str, risen: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Update ``copied`` to the entries that were just committed."""
    copied.position, copied.incarnation, copied.state, copied.moved = after, incarnation, state, True
    copied.numbers |= risen
    copied.unpublished |= risen


def move_cursor(job: int, stream: str, old: str, new: str, incarnation: int) -> None:
    """Move a cursor, within the transaction that writes the entries up to it.

    Raises:
        StaleCursor: if the cursor is not at ``old``.
    """
    if old == new:
        return
    parameters = (new, incarnation, job, stream, old)
    if (
        change_row(
            f"UPDATE {Cursor._meta.db_table} SET position = %s, incarnation = %s"
            " WHERE job_id = %s AND stream = %s AND position = %s",
            parameters,
        )
        != 1
    ):
        raise StaleCursor(f"job {job}: cursor of {stream} is no longer at {old}")


def answer_of(fields: dict[bytes, bytes]) -> Answer:
    """The commands of an entry of the command stream."""
    return Answer(
        incarnation=int(fields.get(b"incarnation", 0)),
        sequence=int(fields[b"sequence"]),
        commands=decode_decisions(fields[b"c"]),
    )


def logged_of(stream_id: bytes, fields: dict[bytes, bytes]) -> Logged:
    """An entry of the log, with its bytes."""
    payload = fields[b"e"]
    entry = stream_id.decode()
    return Logged(entry=Entry(id=entry, event=log.read_event(entry, payload)), payload=payload)
