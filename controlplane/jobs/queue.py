"""The queue of jobs: the slots that each waiting job requests."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import msgspec
from django.db.models import Q, QuerySet

from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.protocol.spec import JobSpec
from controlplane.scheduling.queueing import SlotRequest


class _Fewest(msgspec.Struct, frozen=True):
    minimum_workers: int | None = None


class _SlotFields(msgspec.Struct, frozen=True):
    """The fields of a spec that the queue needs: decoding all is slow if there are traces of thousands of machines."""

    workers: int
    servers: int = 1
    labels: dict[str, str] = {}
    elastic: _Fewest = _Fewest()
    command: list[str] | None = None


def queued_jobs() -> QuerySet[Job]:
    """Jobs that need slots and have not started, from their rows; some of them have slots already."""
    takes_slots = Q(launch="native") | Q(spec__command__0__isnull=False)
    return Job.objects.filter(takes_slots, state=JobState.SUBMITTED).order_by("id")


def slot_request_of(job: Job) -> SlotRequest:
    """The slots that the job needs before it can start."""
    request = _slot_request(job.pk, msgspec.convert(job.spec, _SlotFields), job.priority, job.created_at)
    return replace(request, order=job.queue_order, team=job.team_id or 0, subjects=subjects_of(job))


def slot_requests_of(jobs: Iterable[Job]) -> dict[int, SlotRequest]:
    """The same for many jobs, by id. Jobs with an unreadable row are omitted, since they cannot start."""
    found: dict[int, SlotRequest] = {}
    for job in jobs:
        with suppress(msgspec.ValidationError):
            found[job.pk] = slot_request_of(job)
    return found


def subjects_of(job: Job) -> tuple[str, ...]:
    """Keys of the subjects with quotas that count the job: the user who submitted it, and its team."""
    return (f"user {job.submitted_by_id}",) * bool(job.submitted_by_id) + (f"team {job.team_id}",) * bool(job.team_id)


def slot_request_for(spec: JobSpec, since: datetime, *, team: int = 0) -> SlotRequest:
    """The same for a job that is not submitted yet: it is the last one of its priority."""
    fields = msgspec.convert(msgspec.to_builtins(spec), _SlotFields)
    return replace(_slot_request(LAST, fields, spec.priority, since), team=team)


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
        script=fields.command is not None,
    )
