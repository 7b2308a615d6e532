"""Assigns slots to submitted jobs and restarted processes, and starts the logs of new jobs."""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import structlog
from django.utils import timezone

from controlplane.core.events import Assignment, SlotsAssigned
from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.reservations import release_slots, replace_slot, reserve_slots
from controlplane.fleet.selectors import slots_at_hand, slots_now
from controlplane.jobs.models import Job, Process
from controlplane.jobs.projections import end_lost_job
from controlplane.jobs.queue import queued_jobs, slot_request_of
from controlplane.jobs.shares import plan_queue
from controlplane.jobs.stored_specs import UnreadableSpec, stored_spec
from controlplane.protocol.orders import Role
from controlplane.runtime import log, names
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.redis import shared
from controlplane.scheduling.queueing import Offer, Outcome, SlotRequest, Take

logger = structlog.get_logger(__name__)


def begin_logs() -> list[int]:
    """Begin the log of every submitted row that has none: its submitter crashed after the commit.

    A job with a spec that this release refuses ends with that reason, since it could never start.
    """
    waiting = Job.objects.filter(state=JobState.SUBMITTED, cursors=None).order_by("id")
    started = []
    for job in waiting:
        with isolated_step("beginning logs", job.pk):
            try:
                if log.start_log(job.pk, stored_spec(job)):
                    started.append(job.pk)
            except UnreadableSpec as error:
                end_lost_job(job.pk, JobState.FAILED, str(error), timezone.now())
    return started


def schedule_jobs() -> list[int]:
    """Assign slots to the jobs that can start, as ``scheduling.queueing`` plans; returns the jobs with offers.

    If a job's row is behind its log, it gets the same slots again; they are offered again only after a delay, in case
    the first offer was lost; the engine refuses to start a job twice.
    """
    requests: dict[int, SlotRequest] = {}
    for job in queued_jobs():
        with isolated_step("planning slots", job.pk):
            requests[job.pk] = slot_request_of(job)
    served = _served(requests)
    started: list[int] = []
    for number in served:
        with isolated_step("giving slots", number):
            if not shared().exists(names.slots_sent(number)):
                started += _assign(requests[number], ())
    waiting = [request for number, request in requests.items() if number not in served]
    for verdict in plan_queue(waiting, slots_now(), time.time()):
        if verdict.outcome is Outcome.STARTS:
            with isolated_step("giving slots", verdict.request.job):
                started += _assign(verdict.request, verdict.takes)
    return started


def _served(requests: Mapping[int, SlotRequest]) -> list[int]:
    """Jobs that have all requested slots. Partial reservations, left by a deleted machine, are released."""
    granted = slots_now().held_by(requests)
    served = [job for job in granted if granted[job] >= requests[job].least + requests[job].servers]
    for job in set(granted).difference(served):
        with isolated_step("giving slots back", job):
            release_slots(job)
    return served


def _assign(request: SlotRequest, takes: Sequence[Take]) -> list[int]:
    assignments = reserve_slots(request.job, takes, enough=request.least + request.servers)
    if not assignments or not shared().set(names.slots_sent(request.job), 1, nx=True, px=names.SLOTS_SENT_MS):
        return []
    return _append(request.job, SlotsAssigned(assignments=assignments))


def replace_slots() -> list[int]:
    """Assign slots to restarting processes that cannot return to theirs; returns the jobs with offers.

    All processes of a job are assigned at once: a machine that is lost may have had hundreds of them.
    """
    waiting = Process.objects.filter(wants_slot=True).exclude(job__state__in=JOB_OVER)
    processes = list(waiting.order_by("-role", "job_id", "index"))
    if not processes:
        return []
    jobs = {process.job_id for process in processes}
    wanted: dict[int, SlotRequest] = {}
    for job in Job.objects.filter(pk__in=jobs):
        with isolated_step("planning slots", job.pk):
            wanted[job.pk] = slot_request_of(job)
    offers, at_hand = slots_now().offers, slots_at_hand(jobs)
    assigned: defaultdict[int, list[Assignment]] = defaultdict(list)
    for process in processes:
        if process.job_id in wanted:
            with isolated_step("replacing slots", process.job_id):
                assignments, offers = _replace(process, wanted[process.job_id], offers, at_hand)
                if assignments:
                    assigned[process.job_id] += assignments
    changed: list[int] = []
    for number, found in assigned.items():
        with isolated_step("giving slots", number):
            changed += _append(number, SlotsAssigned(assignments=found))
    return changed


def _replace(
    process: Process, wanted: SlotRequest, offers: tuple[Offer, ...], at_hand: Collection[tuple[int, str, int]]
) -> tuple[list[Assignment], tuple[Offer, ...]]:
    """Reserve a slot for one process, if one fits and none was sent to it lately; returns what to send, and the
    remaining slots.
    """
    job, role = process.job_id, role_of(process)
    own = (job, role, process.index) in at_hand
    if not own and not any(offer.free(role) and wanted.fits(offer) for offer in offers):
        return [], offers
    assignment = replace_slot(job, wanted.labels, role, process.index, offers, team=wanted.team)
    if assignment is None:
        return [], offers
    if not own:
        offers = tuple(offer.without(role) if offer.machine == assignment.agent else offer for offer in offers)
    key = names.slot_sent(job, process.role, process.index, process.instance)
    if not shared().set(key, 1, nx=True, px=names.SLOTS_SENT_MS):
        return [], offers
    return [assignment], offers


def role_of(process: Process) -> Role:
    """The role as a literal type."""
    return "worker" if process.role == "worker" else "server"


def _append(job: int, event: SlotsAssigned) -> list[int]:
    try:
        log.append_event(job, event)
    except log.LogClosed:  # it was stopped meanwhile: release its slots here
        release_slots(job)
        return []
    logger.info("slots assigned", job=job, slots=len(event.assignments))
    return [job]
