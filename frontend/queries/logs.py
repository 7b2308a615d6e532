"""Reads the last lines of a job's logs for its page, and the record with which it failed.

``records`` groups lines: a traceback is one record, even if other processes logged lines in between. It is pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from controlplane.jobs.machines import machine_name
from controlplane.jobs.models import Job, Process
from controlplane.jobs.selectors import job_processes
from controlplane.telemetry.models import LogLine
from controlplane.telemetry.selectors import LEVELS, dropped_lines, job_lines, process_of

LINES: Final = 300
"""Maximum number of lines on the page."""

USUAL: Final = "output"

BEGINS: Final = "Traceback (most recent call last)"
CHAINS: Final = ("During handling of the above exception", "The above exception was the direct cause")
MOST_LINES: Final = 400
"""Maximum number of lines of a record; longer ones are cut."""

_PREFIX: Final = re.compile(r"^(\[[^\]]*\]:? ?|\S+\|\s)")
"""The prefix of launchers before each line, such as ``[rank0]: ``."""

_NAMED: Final = re.compile(r"\b([ws]\d{1,6})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line, or a traceback with all of its lines."""

    pk: int
    """Primary key of its first line."""
    at: datetime
    process: str
    level: str
    title: str
    """The line, or the exception of a traceback."""
    lines: tuple[str, ...] = ()
    """All lines of a traceback."""
    machine: str = ""
    machine_id: int | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class _Open:
    """A traceback that has not ended."""

    first: LogLine
    lines: list[str]
    place: int
    ended: bool = False
    """Whether its exception was read; a chained traceback may still follow."""


def log_page(job: Job, *, level: str, process: str, text: str) -> dict[str, Any]:
    """The lines, the available filters, and the download URL."""
    chosen = {key: value for key, value in (("level", level), ("process", process), ("text", text)) if value}
    lines = list(job_lines(job.pk, level=level, process=process_of(process), text=text)[: LINES + 1])
    return {
        "records": records(lines[:LINES][::-1]),
        "more_lines": len(lines) > LINES,
        "most_lines": LINES,
        "dropped_lines": f"{dropped:,}" if (dropped := dropped_lines(job.pk)) else "",
        "levels": LEVELS,
        "level": level,
        "process": process,
        "text": text,
        "writers": list(dict.fromkeys(f"{each.role[0]}{each.index}" for each in job_processes(job.pk))),
        "logs_query": urlencode(chosen),
    }


def records(lines: Sequence[LogLine]) -> list[Record]:
    """The lines as records, in order; a traceback is placed at its first line."""
    found: list[Record | _Open] = []
    open_by: dict[tuple[str, str], _Open] = {}
    for line in lines:
        key, last = (line.process, line.instance), line.text
        tracked = open_by.get(key)
        if tracked is not None and _continues(tracked, last):
            tracked.lines.append(last)
            tracked.ended = tracked.ended or _is_exception(last)
            tracked.ended = tracked.ended and not _chains(last)
            continue
        open_by.pop(key, None)
        if BEGINS in last:
            open_by[key] = _Open(first=line, lines=last.splitlines(), place=len(found))
            found.append(open_by[key])
        else:
            found.append(Record(pk=line.pk, at=line.at, process=line.process, level=line.level, title=last))
    return [_closed(each) if isinstance(each, _Open) else each for each in found]


def _bare(text: str) -> str:
    return _PREFIX.sub("", text, count=1)


def _chains(text: str) -> bool:
    return _bare(text).startswith(CHAINS)


def _is_exception(text: str) -> bool:
    bare = _bare(text)
    return bool(bare) and not bare[0].isspace() and BEGINS not in bare and not _chains(text)


def _continues(tracked: _Open, text: str) -> bool:
    """Whether the line belongs to the traceback: frames, the exception, blank lines, or a chaining sentence."""
    if len(tracked.lines) >= MOST_LINES:
        return False
    bare = _bare(text)
    if not tracked.ended:
        return True
    return not bare.strip() or _chains(text) or (BEGINS in text and any(_chains(each) for each in tracked.lines[-3:]))


def _closed(found: _Open) -> Record:
    while found.lines and not _bare(found.lines[-1]).strip():
        found.lines.pop()
    exceptions = [_bare(each) for each in found.lines if _is_exception(each)]
    return Record(
        pk=found.first.pk,
        at=found.first.at,
        process=found.first.process,
        level="error",
        title=exceptions[-1] if exceptions else "Incomplete traceback",
        lines=tuple(found.lines),
    )


def failure(job: Job) -> Record | None:
    """The last traceback of a failed job, preferably of the process named in its reason; otherwise the last error."""
    named = [process for name in _NAMED.findall(job.reason) if (process := process_of(name)) is not None]
    for process in (*named[:1], None):
        lines = job_lines(job.pk, process=process)
        first = lines.filter(text__contains=BEGINS).first()
        if first is not None:
            return _with_machine(job, _from(job, first), first)
    last = job_lines(job.pk, level="error").first()
    return None if last is None else _with_machine(job, records([last])[0], last)


def _from(job: Job, first: LogLine) -> Record:
    """The record that starts at a line; for the last traceback of a chain, the whole chain."""
    own = LogLine.objects.filter(job=job, role=first.role, index=first.index, instance=first.instance).order_by("id")
    before = list(own.filter(pk__lt=first.pk).order_by("-id")[:MOST_LINES])[::-1]
    after = list(own.filter(pk__gte=first.pk)[:MOST_LINES])
    found = records([*before, *after])
    return next(each for each in reversed(found) if each.lines and each.pk <= first.pk)


def _with_machine(job: Job, record: Record, line: LogLine) -> Record:
    row = Process.objects.filter(job=job, role=line.role, index=line.index, instance=line.instance).first()
    if row is None:
        return record
    return replace(record, machine=machine_name(row), machine_id=row.agent_id)
