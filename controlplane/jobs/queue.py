"""The queue of jobs: the slots that each waiting job requests, and how the machines can provide them."""

from datetime import datetime

import msgspec
from django.db.models import QuerySet

from controlplane.core.queueing import Ask
from controlplane.core.states import JobState
from controlplane.jobs.models import Job
from controlplane.protocol.spec import JobSpec


class _Fewest(msgspec.Struct, frozen=True):
    minimum_workers: int | None = None


class _Wants(msgspec.Struct, frozen=True):
    """The part of a spec that the queue needs: a spec may also hold traces of thousands of machines."""

    workers: int
    servers: int = 1
    labels: dict[str, str] = {}
    elastic: _Fewest = _Fewest()


def queued_jobs() -> QuerySet[Job]:
    """Jobs that need slots and have not started, from their rows; some of them have slots already."""
    return Job.objects.filter(state=JobState.SUBMITTED, launch="native").order_by("id")


def ask_of(job: Job) -> Ask:
    """The slots that the job needs before it can start."""
    return _ask(job.pk, msgspec.convert(job.spec, _Wants), job.priority, job.created_at)


def ask_for(spec: JobSpec, since: datetime) -> Ask:
    """The same for a job that is not submitted yet: it comes after all others of its priority."""
    wants = msgspec.convert(msgspec.to_builtins(spec), _Wants)
    return _ask(LAST, wants, spec.priority, since)


LAST = 2**63 - 1


def _ask(job: int, wants: _Wants, priority: int, since: datetime) -> Ask:
    fewest = wants.elastic.minimum_workers
    return Ask(
        job=job,
        workers=wants.workers,
        least=wants.workers if fewest is None else fewest,
        servers=wants.servers,
        labels=wants.labels,
        priority=priority,
        since=since.timestamp(),
    )
