"""Gives slots to submitted jobs, the oldest first, and begins the logs of jobs that have none yet."""

import structlog

from controlplane.core.events import SlotsAssigned
from controlplane.core.states import JobState
from controlplane.fleet.services import release_slots, reserve_slots
from controlplane.jobs.models import Job
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.redis import shared

logger = structlog.get_logger(__name__)


def begin_logs() -> list[int]:
    """Begin the log of every submitted row that has none: its submitter crashed after the commit."""
    waiting = Job.objects.filter(state=JobState.SUBMITTED, cursors=None).order_by("id")
    return [job.pk for job in waiting if log.start_log(job.pk, parse_spec(job.spec))]


def schedule_jobs() -> list[int]:
    """Give slots to the jobs that wait, oldest first, until one does not fit; those that were given some.

    A job behind one that does not fit waits too, or a large one would never start. One whose row is behind its log
    gets the same slots again, and is told again only after a while, in case the first telling was lost; the engine
    refuses to start a job twice.
    """
    started = []
    for job in Job.objects.filter(state=JobState.SUBMITTED).order_by("id"):
        spec = parse_spec(job.spec)
        assignments = reserve_slots(job.pk, spec.labels, spec.workers, spec.servers)
        if assignments is None:
            break
        if shared().set(names.slots_told(job.pk), 1, nx=True, px=names.SLOTS_TOLD_MS):
            started += _tell(job.pk, SlotsAssigned(assignments=assignments))
    return started


def _tell(job: int, event: SlotsAssigned) -> list[int]:
    try:
        log.append_event(job, event)
    except log.LogClosed:  # it was stopped meanwhile: nobody else would give these slots back
        release_slots(job)
        return []
    logger.info("slots assigned", job=job, slots=len(event.assignments))
    return [job]
