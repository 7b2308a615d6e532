"""Gives slots to processes that start again and to submitted jobs, and begins the logs of jobs that have none yet."""

import time
from collections.abc import Mapping, Sequence

import structlog

from controlplane.core.events import SlotsAssigned
from controlplane.core.queueing import Ask, Standing, Take, plan
from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.reservations import release_slots, replace_slot, reserve_slots
from controlplane.fleet.selectors import slots_now
from controlplane.jobs.models import Job, Process
from controlplane.jobs.queue import ask_of, queued_jobs
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
    """Give slots to the jobs that can start, as ``core.queueing`` plans it; those that were told of some.

    One whose row is behind its log gets the same slots again, and is told again only after a while, in case the first
    telling was lost; the engine refuses to start a job twice.
    """
    asks = {job.pk: ask_of(job) for job in queued_jobs()}
    served = _served(asks)
    started = [told for job in served if not shared().exists(names.slots_told(job)) for told in _give(asks[job], ())]
    waiting = [ask for job, ask in asks.items() if job not in served]
    for verdict in plan(waiting, slots_now().offers, time.time()):
        if verdict.standing is Standing.STARTS:
            started += _give(verdict.ask, verdict.takes)
    return started


def _served(asks: Mapping[int, Ask]) -> list[int]:
    """Those of the jobs that hold what they asked for. What others hold, where a machine was deleted, is given back."""
    held = slots_now().held_by(asks)
    served = [job for job in held if held[job] >= asks[job].least + asks[job].servers]
    for job in set(held).difference(served):
        release_slots(job)
    return served


def _give(ask: Ask, takes: Sequence[Take]) -> list[int]:
    assignments = reserve_slots(ask.job, takes, enough=ask.least + ask.servers)
    if not assignments or not shared().set(names.slots_told(ask.job), 1, nx=True, px=names.SLOTS_TOLD_MS):
        return []
    return _tell(ask.job, SlotsAssigned(assignments=assignments))


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
