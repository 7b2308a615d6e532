"""Gives slots to processes that start again and to submitted jobs, and begins the logs of jobs that have none yet."""

import structlog

from controlplane.core.events import SlotsAssigned
from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.services import release_slots, replace_slot, reserve_slots
from controlplane.jobs.models import Job, Process
from controlplane.protocol.orders import Role
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
        least = spec.elastic.minimum_workers
        assignments = reserve_slots(job.pk, spec.labels, spec.workers, spec.servers, least=least)
        if assignments is None:
            break
        if shared().set(names.slots_told(job.pk), 1, nx=True, px=names.SLOTS_TOLD_MS):
            started += _tell(job.pk, SlotsAssigned(assignments=assignments))
    return started


def replace_slots() -> list[int]:
    """Give slots to processes that start again and cannot return to theirs; the jobs that were told."""
    told = []
    waiting = Process.objects.filter(wants_slot=True).exclude(job__state__in=JOB_OVER).select_related("job")
    for process in waiting.order_by("-role", "job_id", "index"):
        spec = parse_spec(process.job.spec)
        assignment = replace_slot(process.job_id, spec.labels, role_of(process), process.index)
        key = names.slot_told(process.job_id, process.role, process.index, process.instance)
        if assignment is not None and shared().set(key, 1, nx=True, px=names.SLOTS_TOLD_MS):
            told += _tell(process.job_id, SlotsAssigned(assignments=[assignment]))
    return told


def role_of(process: Process) -> Role:
    """Which of the two it is."""
    return "worker" if process.role == "worker" else "server"


def _tell(job: int, event: SlotsAssigned) -> list[int]:
    try:
        log.append_event(job, event)
    except log.LogClosed:  # it was stopped meanwhile: nobody else would give these slots back
        release_slots(job)
        return []
    logger.info("slots assigned", job=job, slots=len(event.assignments))
    return [job]
