"""Writes history from a job's log: every event as it was logged, reports as columns, and evaluations as rows.

Called by ingest, in the transaction that moves its cursor, and for the log of a simulated run (``simulated``). Each
event is passed once. A report may be in the log twice, since its sender resends it after a reconnect, but is stored
once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controlplane.core.events import Entry, Event, IncarnationBegan, ServerMessageReceived, WorkerMessageReceived
from controlplane.jobs.models import Job
from controlplane.jobs.projections import Progress, time_of
from controlplane.jobs.rows import insert_new_rows, insert_rows
from controlplane.protocol import messages
from controlplane.telemetry.batches import Received, columns_of, encoded_batch
from controlplane.telemetry.logged import record_logged
from controlplane.telemetry.models import Evaluation, RawEvent, ReportBatch
from controlplane.telemetry.tallies import tally_reports

EVENT_FIELDS: Final = ("job", "incarnation", "stream_id", "kind", "payload")
BATCH_FIELDS: Final = ("job", "reports", "data")
EVALUATION_FIELDS: Final = ("job", "iteration", "at", "elapsed_s", "loss", "accuracy", "samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An entry of the log and the bytes that it was read from."""

    entry: Entry
    payload: bytes


Reported = tuple[Entry, WorkerMessageReceived, Any]


def record_events(job_id: int, incarnation: int, logged: Sequence[Logged], are_next: Sequence[bool]) -> Progress:
    """Write the events and the rows derived from them; returns what they add to the job.

    A report counts if ``are_next`` marks it as the next message of its sender (``numbers``): a repeated one is already
    stored, and one after a gap will be sent again.
    """
    record_raw(job_id, incarnation, logged)
    progress = Progress()
    for _, _, hello in _reported(logged, messages.WorkerHello):
        progress.training_samples = hello.sample_count
    new = [item for item, is_next in zip(logged, are_next, strict=True) if is_next]
    _record_reports(job_id, list(_reported(new, messages.IterationReport)), progress)
    record_evaluations(job_id, list(_reported(logged, messages.Evaluation)), progress)
    return progress


def record_raw(job_id: int, incarnation: int, logged: Sequence[Logged]) -> None:
    """Write the events as they are in the log, without derived rows."""
    insert_rows(
        RawEvent,
        EVENT_FIELDS,
        [
            (job_id, number, item.entry.id, kind_of(item.entry.event), item.payload)
            for number, item in zip(incarnations(incarnation, logged), logged, strict=True)
        ],
    )


def incarnations(before: int, logged: Iterable[Logged]) -> Iterator[int]:
    """The incarnation of each entry: a new one if the entry begins it, otherwise the previous entry's."""
    for item in logged:
        if isinstance(item.entry.event, IncarnationBegan):
            before = item.entry.event.incarnation
        yield before


def kind_of(event: Event) -> str:
    """The kind by which users filter events: the message's kind, otherwise the event's."""
    content = event.message if isinstance(event, WorkerMessageReceived | ServerMessageReceived) else event
    return str(content.__struct_config__.tag)


def _reported(logged: Sequence[Logged], kind: type) -> Iterable[Reported]:
    for item in logged:
        event = item.entry.event
        if isinstance(event, WorkerMessageReceived) and isinstance(event.message, kind):
            yield item.entry, event, event.message


def _record_reports(job_id: int, reported: Sequence[Reported], progress: Progress) -> None:
    """Write new reports."""
    if not reported:
        return
    received = []
    for entry, event, report in reported:
        add_report(progress, event, report)
        received.append(Received(rank=event.rank, instance=event.instance, at_ms=entry.at_ms, report=report))
    columns = columns_of(received)
    insert_rows(ReportBatch, BATCH_FIELDS, [(job_id, len(columns), encoded_batch(columns))])
    tally_reports(job_id, columns)
    record_logged(job_id, [report for _, _, report in reported if report.logged])


def add_report(progress: Progress, event: WorkerMessageReceived, report: messages.IterationReport) -> None:
    """Count a new report."""
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
