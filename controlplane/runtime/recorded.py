"""A job's log and decisions as the database has them, for replay and what-if. Reads only."""

from collections.abc import Iterator
from typing import Final

from django.db.models import Exists, OuterRef

from controlplane.core.events import Entry, JobSubmitted
from controlplane.jobs.models import Decision, Job
from controlplane.runtime import log
from controlplane.simulator.replay import Decided
from controlplane.telemetry.models import RawEvent

CHUNK: Final = 2000
"""Rows that are fetched at once."""


class NotRecorded(LookupError):
    """There is no such job, or its log is not in the database from its beginning on."""


def recorded_job(job_id: int) -> Job:
    """The job.

    Raises:
        NotRecorded: if there is none, or its events are gone.
    """
    job = Job.objects.filter(pk=job_id).select_related("simulation").first()
    if job is None:
        last = Job.objects.order_by("-pk").values_list("pk", flat=True).first()
        known = f"the latest is job {last}" if last is not None else "none was ever submitted here"
        raise NotRecorded(f"job {job_id}: there is none in this database; {known}")
    if job.simulation is not None:
        raise NotRecorded(
            f"job {job_id}: it is a run of simulation {job.simulation.pk}, which anybody can make again: "
            f"python manage.py simulate {job.simulation.scenario} --policies {job.policy} --seed {job.simulation.seed}"
        )
    first = RawEvent.objects.filter(job_id=job_id).order_by("incarnation", "id").first()
    if first is None:
        raise NotRecorded(f"job {job_id}: none of its events is in the database: they were pruned, or never copied")
    if not isinstance(log.decode_event(bytes(first.payload)), JobSubmitted):
        raise NotRecorded(f"job {job_id}: its log begins with {first.kind} at {first.stream_id}: the start was pruned")
    return job


def recorded_log(job_id: int) -> Iterator[Entry]:
    """Every entry of the job's log, in order."""
    rows = RawEvent.objects.filter(job_id=job_id).order_by("incarnation", "id")
    for stream_id, payload in rows.values_list("stream_id", "payload").iterator(chunk_size=CHUNK):
        yield Entry(id=stream_id, event=log.decode_event(bytes(payload)))


def recorded_decisions(job_id: int) -> Iterator[Decided]:
    """Every decision of the job, in order, but for those about entries that Redis lost before they were copied."""
    rows = Decision.objects.filter(job_id=job_id).order_by("incarnation", "sequence")
    if rows.filter(incarnation__gt=0).exists():
        entries = RawEvent.objects.filter(job_id=job_id, incarnation__lte=OuterRef("incarnation"))
        rows = rows.filter(Exists(entries.filter(stream_id=OuterRef("cause"))))
    for cause, kind, payload in rows.values_list("cause", "kind", "payload").iterator(chunk_size=CHUNK):
        yield Decided(cause=cause, kind=kind, content=payload)
