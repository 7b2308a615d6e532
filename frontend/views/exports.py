"""Exports a job's decisions and the audit log as CSV or JSON, streamed row by row."""

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404

from controlplane.jobs.models import AuditEntry, Decision, Job
from controlplane.jobs.roles import Role
from controlplane.jobs.streaming import streamed_lines
from frontend.parameters import one_of
from frontend.queries.audit import audit_rows
from frontend.queries.job import KINDS, actor_of, of_kinds, request_actors
from frontend.queries.wording import describe
from frontend.views.access import needs
from frontend.views.audit import filters_of

AUDIT_COLUMNS = ("at", "actor", "action", "subject", "detail")
COLUMNS = ("incarnation", "sequence", "at", "kind", "iteration", "what", "reason", "cause", "actor", "payload")
CONTENT_TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@needs(Role.VIEWER)
def decisions_export(request: HttpRequest, job_id: int, form: str) -> StreamingHttpResponse:
    """A job's decisions, oldest first, as CSV with a header, or as one JSON list."""
    job, kinds = get_object_or_404(Job, pk=job_id), one_of(request.GET, "decisions", KINDS, "all")
    rows = Decision.objects.filter(of_kinds(kinds), job=job).order_by("incarnation", "sequence")
    return _file(
        request,
        map(partial(_line, request_actors(job)), rows.iterator(chunk_size=500)),
        COLUMNS,
        f"job-{job.pk}-decisions",
        form,
    )


@needs(Role.VIEWER)
def audit_export(request: HttpRequest, form: str) -> StreamingHttpResponse:
    """The audit log, filtered as on the page, oldest first."""
    actor, action = filters_of(request)
    rows = audit_rows(actor=actor, action=action).order_by("id")
    return _file(request, map(_audit_row, rows.iterator(chunk_size=500)), AUDIT_COLUMNS, "audit", form)


def _file(
    request: HttpRequest, lines: Iterator[dict[str, Any]], columns: Sequence[str], name: str, form: str
) -> StreamingHttpResponse:
    parts = _as_csv(lines, columns) if form == "csv" else _as_json(lines)
    reply = StreamingHttpResponse(streamed_lines(request, parts), content_type=CONTENT_TYPES[form])
    reply["Content-Disposition"] = f"attachment; filename={name}.{form}"
    return reply


def _audit_row(row: AuditEntry) -> dict[str, Any]:
    return {name: row.at.isoformat() if name == "at" else getattr(row, name) for name in AUDIT_COLUMNS}


def _line(actors: dict[str, str], row: Decision) -> dict[str, Any]:
    texts = {"at": row.at.isoformat(), "what": describe(row.kind, row.payload), "actor": actor_of(row, actors)}
    return {name: texts[name] if name in texts else getattr(row, name) for name in COLUMNS}


def _as_json(lines: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield "["
    for number, line in enumerate(lines):
        yield (",\n" if number else "\n") + msgspec.json.encode(line).decode()
    yield "\n]\n"


def _as_csv(lines: Iterator[dict[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Encode as CSV; nested values are JSON."""
    writer = csv.writer(_Echo())
    yield writer.writerow(columns)
    for line in lines:
        yield writer.writerow(_harmless(_flat(value)) for value in line.values())


def _flat(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value


def _harmless(value: Any) -> Any:
    """Escape a text that a spreadsheet would interpret as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value


class _Echo:
    """A file object that returns what is written to it."""

    def write(self, text: str) -> str:
        return text
