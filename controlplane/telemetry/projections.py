"""Writes history from a job's log: every event as it was logged, and reports and evaluations as rows.

Called by ingest, in the transaction that moves its cursor, and for the log of a simulated run (``simulated``). An event
arrives here once; a report may be in the log twice, since its sender resends it after a reconnect, and makes one row.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from controlplane.core.events import Entry, Event, IncarnationBegan, ServerHeard, WorkerHeard
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Progress, time_of
from controlplane.jobs.rows import insert_new_rows, insert_rows
from controlplane.protocol import messages
from controlplane.protocol.measurements import known_of, values_of
from controlplane.telemetry.logged import record_logged
from controlplane.telemetry.models import Evaluation, RawEvent, Report
from controlplane.telemetry.stored import OTHERS, OWN_COLUMNS
from controlplane.telemetry.tallies import ReceivedReport, tally_reports

EVENT_FIELDS: Final = ("job", "incarnation", "stream_id", "kind", "payload")
REPORT_KEY: Final = ("instance", "generation", "iteration")
REPORT_FIELDS: Final = ("job", "rank", *REPORT_KEY, "at", "position", "overran", *OWN_COLUMNS, "others")
EVALUATION_FIELDS: Final = ("job", "iteration", "at", "elapsed_s", "loss", "accuracy", "samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An entry of the log and the bytes that it was read from."""

    entry: Entry
    payload: bytes


Reported = tuple[Entry, WorkerHeard, Any]


def record_events(job_id: int, incarnation: int, logged: Sequence[Logged]) -> Progress:
    """Write the events and the rows derived from them; what they add to the job."""
    record_raw(job_id, incarnation, logged)
    progress = Progress()
    for _, _, hello in _reported(logged, messages.WorkerHello):
        progress.training_samples = hello.sample_count
    _record_reports(job_id, list(_reported(logged, messages.IterationReport)), progress)
    record_evaluations(job_id, list(_reported(logged, messages.Evaluation)), progress)
    return progress


def record_raw(job_id: int, incarnation: int, logged: Sequence[Logged]) -> None:
    """Write the events as they are in the log, and nothing derived from them."""
    insert_rows(
        RawEvent,
        EVENT_FIELDS,
        [
            (job_id, number, item.entry.id, kind_of(item.entry.event), item.payload)
            for number, item in zip(incarnations(incarnation, logged), logged, strict=True)
        ],
    )


def incarnations(before: int, logged: Iterable[Logged]) -> Iterator[int]:
    """The incarnation of each entry: the one that it begins, or that of the entry before it."""
    for item in logged:
        if isinstance(item.entry.event, IncarnationBegan):
            before = item.entry.event.incarnation
        yield before


def report_row(job_id: int, stream_id: str, event: WorkerHeard, report: messages.IterationReport) -> Sequence[Any]:
    """The values of REPORT_FIELDS."""
    others = known_of(report, OTHERS)
    return (
        *(job_id, event.rank, event.instance, report.generation, report.iteration),
        *(time_of(stream_id), report.position, report.overran),
        *map(finite, values_of(report, OWN_COLUMNS)),
        msgspec.json.encode(others).decode() if others else "{}",
    )


def kind_of(event: Event) -> str:
    """The kind by which users filter events: that of the message, otherwise that of the event."""
    content = event.message if isinstance(event, WorkerHeard | ServerHeard) else event
    return str(content.__struct_config__.tag)


def _reported(logged: Sequence[Logged], kind: type) -> Iterable[Reported]:
    for item in logged:
        event = item.entry.event
        if isinstance(event, WorkerHeard) and isinstance(event.message, kind):
            yield item.entry, event, event.message


def _record_reports(job_id: int, reported: Sequence[Reported], progress: Progress) -> None:
    if not reported:
        return
    rows = [report_row(job_id, entry.id, event, report) for entry, event, report in reported]
    new = insert_new_rows(Report, REPORT_FIELDS, rows, key=REPORT_KEY)
    received = []
    for entry, event, report in reported:
        key = (event.instance, report.generation, report.iteration)
        if key not in new:
            continue
        new.discard(key)
        add_report(progress, event, report)
        received.append(ReceivedReport(rank=event.rank, instance=event.instance, at_ms=entry.at_ms, report=report))
    tally_reports(job_id, received)
    record_logged(job_id, [each.report for each in received])


def add_report(progress: Progress, event: WorkerHeard, report: messages.IterationReport) -> None:
    """Count a report that is new."""
    progress.reports += 1
    progress.samples += report.samples
    progress.busy_s += report.busy_s
    progress.waiting_s += report.waiting_s
    progress.coordination_s += report.coordination_s
    for each in report.exchanges:
        if not each.is_probe:
            progress.exchanges.setdefault(each.server, []).append((each.push_s, each.pull_s))
    for block in report.blocks:
        progress.blocks.setdefault(block.server, {}).setdefault(block.block, []).append(block)
    worker = (event.rank, event.instance)
    progress.iterations[worker] = max(report.iteration, progress.iterations.get(worker, 0))


def record_evaluations(job_id: int, reported: Sequence[Reported], progress: Progress) -> None:
    """Write a job's scores as rows."""
    if not reported:
        return
    started_at = Job.objects.values_list("started_at", flat=True).get(pk=job_id)
    rows = []
    for entry, _, score in reported:
        at = time_of(entry.id)
        elapsed_s = (at - started_at).total_seconds() if started_at else 0.0
        rows.append((job_id, score.iteration, at, elapsed_s, score.loss, score.accuracy, score.samples))
    insert_new_rows(Evaluation, EVALUATION_FIELDS, rows, key=("iteration",))
    last = max((score for _, _, score in reported), key=lambda score: score.iteration)
    progress.evaluated = (last.loss, last.accuracy)


def finite(value: float) -> float | None:
    """As the database stores it: null where it is not known, or no finite number."""
    return value if math.isfinite(value) else None
