"""Dead letters: entries that cannot be written are stored with their cause and end their own job only.

A batch that fails is written again entry by entry, each in a transaction with its cursor. An entry that fails by itself
becomes a row of ``DeadLetter``. The rest of its answer and the raw event are stored to keep the log complete. Without
failures this costs nothing.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec
import structlog
from django.db import DatabaseError, transaction
from django.db.models import Count
from django.utils import timezone

from controlplane.core.commands import AnyCommand, Delivered, MoveJob
from controlplane.core.events import EngineFailed
from controlplane.core.states import JOB_OVER, JobState
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Answer, apply_answers, end_lost_job
from controlplane.protocol.cleaning import clean_text
from controlplane.runtime import log
from controlplane.runtime.batches import (
    Copied,
    Read,
    StaleCursor,
    answer_of,
    logged_of,
    move_cursor,
    passed,
    write_batch,
)
from controlplane.runtime.ingest_health import is_out_of_reach
from controlplane.runtime.job_failures import failed_steps
from controlplane.runtime.redis import Client
from controlplane.runtime.streams import Position
from controlplane.telemetry.models import DeadLetter
from controlplane.telemetry.numbers import next_messages, record_numbers
from controlplane.telemetry.projections import incarnations, kind_of, record_raw

MOST_BYTES: Final = 64 * 1024
"""Maximum number of bytes of an entry to store."""

MOST_LETTERS: Final = 100
"""Maximum number of dead letters of a job: later ones mostly result from the first."""

SHOWN_FOR: Final = timedelta(days=1)
"""How long operators see a warning about a dead letter; the job's page shows it permanently."""

Entry = tuple[bytes, dict[bytes, bytes]]

logger = structlog.get_logger(__name__)


def write_apart(job: int, copied: Copied, commands: Read, events: Read) -> tuple[int, list[DeadLetter]]:
    """Write a batch entry by entry, and store what cannot be written; the number of new reports, and the dead letters.

    Raises:
        StaleCursor: if another process has moved a cursor meanwhile.
    """
    reports, letters = 0, []
    for place, entries in enumerate((commands, events)):
        for entry in entries:
            try:
                reports += write_batch(job, copied, *(([entry], []) if place == 0 else ([], [entry])))
            except StaleCursor:
                raise
            except Exception as error:
                if is_out_of_reach(error):
                    raise
                store_dead_letter = _store_dead_commands if place == 0 else _store_dead_event
                letters += store_dead_letter(job, copied, entry, error)
    for letter in letters:
        logger.error(
            "an entry could not be written and became a dead letter",
            job=job,
            stream=letter.stream,
            entry=letter.stream_id,
            kind=letter.kind,
            why=letter.cause,
        )
    return reports, letters


def first_of(job: int) -> DeadLetter | None:
    """The first dead letter of a job that has not ended: the job should end because of it."""
    return DeadLetter.objects.filter(job_id=job).exclude(job__state__in=JOB_OVER).order_by("pk").first()


def end_job(client: Client, job: int, letter: DeadLetter) -> None:
    """Request the job's engine to end the job, with the reason; it accepts that once, and only for a live job."""
    with suppress(log.LogClosed):
        log.append_event(job, EngineFailed(entry=letter.stream_id, reason=_reason(letter)), client=client)


def sentence() -> str:
    """A warning for operators: the number of recent dead letters, their jobs, and the cure; empty if there are none."""
    lately = DeadLetter.objects.filter(at__gt=timezone.now() - SHOWN_FOR)
    counts = dict(lately.order_by("job").values_list("job").annotate(number=Count("pk")))
    if not counts:
        return ""
    newest = lately.latest("pk")
    number, jobs = sum(counts.values()), sorted(counts)
    named = ", ".join(map(str, jobs[:5])) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
    return (
        f"{number} {'entry' if number == 1 else 'entries'} of job{'s' * (len(jobs) > 1)} {named} could not be written"
        f" and {'was' if number == 1 else 'were'} set aside (the last one: {newest.kind}, {newest.cause[:200]})."
        f" {'That job has' if len(jobs) == 1 else 'Those jobs have'} failed, all others continue. Submit again once the"
        " cause is fixed; the entries are in the table telemetry_deadletter until their jobs are pruned."
    )


def job_warnings(client: Client) -> str:
    """A warning about jobs with dead letters or that failed in a background loop; empty while healthy."""
    try:
        letters = sentence()
    except DatabaseError:  # the check of the database itself reports this
        letters = ""
    return " ".join(warning for warning in (letters, failed_steps(client)) if warning)


def _store_dead_commands(job: int, copied: Copied, entry: Entry, error: Exception) -> list[DeadLetter]:
    """Write the commands of an answer one by one, and store those that fail as dead letters."""
    stream_id, letters, released = entry[0].decode(), [], False
    try:
        answer = answer_of(entry[1])
    except Exception as unreadable:
        answer = Answer(incarnation=copied.incarnation, sequence=0, commands=[])
        payload = entry[1].get(b"c", b"")
        letters.append(_letter(job, copied, "commands", stream_id, "unreadable", unreadable, payload))
    with transaction.atomic():
        last = max(copied.incarnation, answer.incarnation)
        move_cursor(job, "commands", copied.position.commands, stream_id, last)
        for number, command in enumerate(answer.commands, start=answer.sequence):
            alone = Answer(incarnation=answer.incarnation, sequence=number, commands=[command])
            try:
                with transaction.atomic():
                    released |= apply_answers(job, [alone])
            except Exception as refused:
                if is_out_of_reach(refused):
                    raise
                kind = str(command.__struct_config__.tag)
                payload = msgspec.msgpack.encode(command)
                letter = _letter(job, copied, "commands", stream_id, kind, refused, payload)
                letters.append(letter)
                _end_with_valid_fields(job, command, letter)
        _keep(job, letters)
        state = Job.objects.values_list("state", flat=True).get(pk=job)
    passed(copied, Position(events=copied.position.events, commands=stream_id), copied.incarnation, state)
    copied.fleet |= released
    return letters


def _store_dead_event(job: int, copied: Copied, entry: Entry, error: Exception) -> list[DeadLetter]:
    """Store the raw event if possible, since a job is rebuilt from its events."""
    logged = logged_of(*entry)
    incarnation = max(incarnations(copied.incarnation, [logged]))
    _, risen = next_messages(copied.numbers, [logged.entry.event])
    letter = _letter(job, copied, "events", logged.entry.id, kind_of(logged.entry.event), error, logged.payload)
    with transaction.atomic():
        move_cursor(job, "events", copied.position.events, logged.entry.id, incarnation)
        try:
            with transaction.atomic():
                record_raw(job, copied.incarnation, [logged])
        except Exception as refused:
            if is_out_of_reach(refused):
                raise
        record_numbers(job, risen)  # it is stored, so its sender does not have to resend it
        _keep(job, [letter])
        state = Job.objects.values_list("state", flat=True).get(pk=job)
    passed(copied, Position(events=logged.entry.id, commands=copied.position.commands), incarnation, state, risen)
    return [letter]


def _end_with_valid_fields(job: int, command: AnyCommand | Delivered, letter: DeadLetter) -> None:
    """If the end of the job cannot be written as decided, end it with the fields that can be."""
    if isinstance(command, MoveJob) and command.state in JOB_OVER:
        end_lost_job(job, JobState.FAILED, _reason(letter), timezone.now())


def _letter(
    job: int, copied: Copied, stream: str, stream_id: str, kind: str, error: Exception, payload: bytes
) -> DeadLetter:
    return DeadLetter(
        job_id=job,
        incarnation=copied.incarnation,
        stream=stream,
        stream_id=stream_id,
        kind=kind,
        cause=clean_text(f"{type(error).__name__}: {' '.join(str(error).split())}", 2_000),
        payload=payload[:MOST_BYTES],
    )


def _reason(letter: DeadLetter) -> str:
    return clean_text(f"its history could not be written ({letter.kind}: {letter.cause}); the entry is set aside")


def _keep(job: int, letters: list[DeadLetter]) -> None:
    room = MOST_LETTERS - DeadLetter.objects.filter(job_id=job).count()
    DeadLetter.objects.bulk_create(letters[: max(0, room)])
