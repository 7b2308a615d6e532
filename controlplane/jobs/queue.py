"""The queue of jobs: the slots that each waiting job requests, and how the machines can provide them."""

from datetime import datetime

import msgspec
from django.db.models import QuerySet

from controlplane.core.queueing import SlotRequest
from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.protocol.spec import JobSpec


class _Fewest(msgspec.Struct, frozen=True):
    minimum_workers: int | None = None


class _SlotFields(msgspec.Struct, frozen=True):
    """The part of a spec that the queue needs: a spec may also hold traces of thousands of machines."""

    workers: int
    servers: int = 1
    labels: dict[str, str] = {}
    elastic: _Fewest = _Fewest()


def queued_jobs() -> QuerySet[Job]:
    """Jobs that need slots and have not started, from their rows; some of them have slots already."""
    return Job.objects.filter(state=JobState.SUBMITTED, launch="native").order_by("id")


def slot_request_of(job: Job) -> SlotRequest:
    """The slots that the job needs before it can start."""
    return _slot_request(job.pk, msgspec.convert(job.spec, _SlotFields), job.priority, job.created_at)


def slot_request_for(spec: JobSpec, since: datetime) -> SlotRequest:
    """The same for a job that is not submitted yet: it comes after all others of its priority."""
    fields = msgspec.convert(msgspec.to_builtins(spec), _SlotFields)
    return _slot_request(LAST, fields, spec.priority, since)


LAST = 2**63 - 1


def _slot_request(job: int, fields: _SlotFields, priority: int, since: datetime) -> SlotRequest:
    fewest = fields.elastic.minimum_workers
    return SlotRequest(
        job=job,
        workers=fields.workers,
        least=fields.workers if fewest is None else fewest,
        servers=fields.servers,
        labels=fields.labels,
        priority=priority,
        since=since.timestamp(),
    )
