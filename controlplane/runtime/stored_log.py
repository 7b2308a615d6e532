"""The log of a job in the database, for recovery when Redis no longer has it."""

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models import Max

from controlplane.core.events import Entry
from controlplane.jobs.models import Decision
from controlplane.runtime import log
from controlplane.telemetry.models import Cursor, RawEvent

CHUNK = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The positions up to which the database has a job's two streams, and the incarnation of the latest entry."""

    events: str
    commands: str
    incarnation: int
    sequences: dict[int, int]
    """The highest sequence number of a decision, by incarnation."""


def stored_so_far(job: int) -> Stored:
    """The stored positions of the job."""
    cursors = {row.stream: row for row in Cursor.objects.filter(job_id=job)}
    highest = Decision.objects.filter(job_id=job).values_list("incarnation").annotate(Max("sequence"))
    sequences: dict[int, int] = dict(highest)
    events, commands = (cursors[stream] if stream in cursors else Cursor() for stream in ("events", "commands"))
    return Stored(
        events=events.position,
        commands=commands.position,
        incarnation=max([events.incarnation, *sequences]),
        sequences=sequences,
    )


def stored_entries(job: int, *, after: str, kind: str = "") -> Iterator[Entry]:
    """The job's entries in the order of its log, after ``after``; only those of ``kind``, if given."""
    rows = RawEvent.objects.filter(job_id=job).order_by("pk")
    if (known := rows.filter(stream_id=after).values_list("pk", flat=True).last()) is not None:
        rows = rows.filter(pk__gt=known)
    if kind:
        rows = rows.filter(kind=kind)
    for stream_id, payload in rows.values_list("stream_id", "payload").iterator(chunk_size=CHUNK):
        yield Entry(id=stream_id, event=log.read_event(stream_id, bytes(payload)))
