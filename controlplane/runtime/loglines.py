"""Log lines of processes: a bounded stream per job, and the ingest step that writes them to a bounded number of rows.

They have separate streams, the lowest priority and a limit per second, so that many lines do not delay reports. Lines
above the limit are dropped, and one line in their place gives their number. Of the rows of a job, the oldest are
dropped, and the job's ``LogTally`` gives their number.
"""

import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog
from django.db import transaction

from controlplane.jobs.models import Job
from controlplane.jobs.projections import time_of
from controlplane.jobs.rows import insert_rows
from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.messages import LogLines
from controlplane.runtime import names
from controlplane.runtime.faults import reach
from controlplane.runtime.ingest_health import is_out_of_reach
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.redis import Client
from controlplane.runtime.scripts import APPEND_LINES, FORGET_LINES
from controlplane.runtime.wire import Caller
from controlplane.telemetry.models import Cursor, LogLine, LogTally

MOST_ENTRIES: Final = 400
"""Length of one job's stream; an entry has up to 100 lines, so this is some megabytes."""

ENTRIES: Final = 10
"""Entries of one job per transaction and round."""

EACH_S: Final = 0.5
"""Interval between two rounds."""

MOST_LINES: Final = 100_000
"""Stored lines of a job. One has at most 2,000 characters, so these are 200 MB at the very most."""

SLACK: Final = 5_000
"""The oldest lines are dropped when there are so many more, since finding them takes as long as many inserts."""

FIELDS: Final = ("job", "role", "index", "instance", "at", "level", "text")
STREAM: Final = "lines"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[LogLines] = msgspec.msgpack.Decoder(LogLines)
logger = structlog.get_logger(__name__)


async def append_lines(caller: Caller, batch: LogLines) -> None:
    """Append an agent's log lines to its job's stream."""
    job = batch.process.job
    keys = [names.lines(job), names.lines_count(job), names.LINES_JOBS]
    await APPEND_LINES.acall(caller, keys, MOST_ENTRIES, job, len(batch.lines) + batch.dropped, _encoder.encode(batch))


class StaleLines(RuntimeError):
    """Another process has moved the cursor of a job's lines: nothing was written."""


@dataclass(slots=True, kw_only=True)
class Written:
    """The position up to which one job's lines are written, and the number of lines before the next entry."""

    position: str
    next_line: int | None = None


@dataclass(slots=True)
class LineWriter:
    """Ingest's step for log lines."""

    client: Client
    _jobs: dict[int, Written] = field(default_factory=dict)
    _next_s: float = 0.0

    def step(self) -> dict[int, str]:
        """If due, write some lines of each job that has any; returns those jobs and their states."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return {}
        self._next_s = now_s + EACH_S
        jobs = sorted(int(job) for job in self.client.smembers(names.LINES_JOBS))
        self._jobs = {job: written for job, written in self._jobs.items() if job in jobs}
        moved = {}
        for job in jobs:
            with isolated_step("writing lines", job, self.client):
                if (state := self._try(job)) is not None:
                    moved[job] = state
        return moved

    def _try(self, job: int) -> str | None:
        try:
            return self._write(job)
        except StaleLines as stale:
            self._jobs.pop(job)
            logger.warning("cursor moved by another process", job=job, why=str(stale))
            return None
        except Exception as error:  # one job's lines must not prevent the others'
            self._jobs.pop(job, None)
            if is_out_of_reach(error):
                raise
            logger.exception("log lines of a job were dropped", job=job)
            self.client.delete(names.lines(job))
            return None

    def _write(self, job: int) -> str | None:
        written = self._jobs.setdefault(job, _written(job))
        entries: list[Any] = self.client.execute_command(
            "XREAD", "COUNT", ENTRIES, "STREAMS", names.lines(job), written.position
        )
        if not entries:
            keys = [names.lines(job), names.lines_count(job), names.LINES_JOBS, names.LIVE_JOBS]
            FORGET_LINES.run(self.client, keys, job)
            return None
        found = [(stream_id.decode(), fields) for stream_id, fields in entries[0][1]]
        rows = [row for stream_id, fields in found for row in _rows(job, written, stream_id, fields)]
        last = found[-1][0]
        with transaction.atomic():
            state = Job.objects.values_list("state", flat=True).get(pk=job)
            moved = Cursor.objects.filter(job_id=job, stream=STREAM, position=written.position).update(position=last)
            if not moved:
                raise StaleLines(f"job {job}: cursor of its lines is no longer at {written.position}")
            insert_rows(LogLine, FIELDS, rows)
            _bound(job, len(rows))
            reach("lines.written")
        written.position = last
        reach("lines.committed")
        self.client.execute_command("XDEL", names.lines(job), *(stream_id for stream_id, _ in found))
        return str(state)


def _written(job: int) -> Written:
    cursor, _ = Cursor.objects.get_or_create(job_id=job, stream=STREAM)
    return Written(position=cursor.position)


def _bound(job: int, added: int) -> None:
    """Count the added rows, and drop the oldest rows of the job if there are too many."""
    tally, is_new = LogTally.objects.get_or_create(job_id=job)
    tally.lines = LogLine.objects.filter(job_id=job).count() if is_new else tally.lines + added
    if tally.lines - tally.dropped > MOST_LINES + SLACK:
        stored = LogLine.objects.filter(job_id=job)
        oldest_kept = stored.order_by("-id").values_list("id", flat=True)[MOST_LINES - 1]
        tally.dropped += stored.filter(id__lt=oldest_kept).delete()[0]
    tally.save()


def _rows(job: int, written: Written, stream_id: str, fields: dict[bytes, bytes]) -> list[tuple[Any, ...]]:
    """The rows of one entry, after a row with the number of lines missing before it, if any."""
    try:
        batch = _decoder.decode(fields[b"l"])
    except UNREADABLE as error:  # other entries are not affected
        logger.warning("lines of a job cannot be read", job=job, entry=stream_id, why=str(error))
        return []
    at, before = time_of(stream_id), int(fields[b"before"])
    name = batch.process
    lost = batch.dropped + (before - written.next_line if written.next_line is not None else 0)
    written.next_line = before + batch.dropped + len(batch.lines)
    rows = [_row(job, name, at, "warning", f"{lost} lines were dropped: the buffer was full")] if lost > 0 else []
    return rows + [_row(job, name, at, line.level, line.text) for line in batch.lines]


def _row(job: int, name: Any, at: datetime, level: str, text: str) -> tuple[Any, ...]:
    return job, name.role, name.index, name.instance, at, level, text
