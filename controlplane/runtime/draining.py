"""Drains machines: requests jobs to move their processes to other machines, as ``scheduling.draining`` decides.

Every pass starts from the stored state, so a pass may be lost or repeated: answered requests are not repeated.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.db import transaction
from django.utils import timezone

from controlplane.core.events import DrainRequested, InclusionRequested, ServerRequested
from controlplane.core.states import PROCESS_OVER, JobState, ProcessState
from controlplane.fleet import scheduling
from controlplane.fleet.models import Agent, Move, Reservation
from controlplane.fleet.selectors import slots_now
from controlplane.jobs.models import Decision, Job, Process
from controlplane.jobs.queue import slot_request_of
from controlplane.jobs.requests import DECLINE
from controlplane.jobs.services import audit
from controlplane.jobs.stored_specs import UnreadableSpec, stored_spec
from controlplane.protocol.orders import Role
from controlplane.runtime import log, ticks
from controlplane.runtime.job_failures import isolated_step
from controlplane.runtime.redis import shared
from controlplane.scheduling.draining import Preview, Resident, Stage, Step, Tenant, next_steps, preview
from controlplane.scheduling.queueing import Offer

RUNS = (JobState.RUNNING, JobState.PAUSED)
ACTIONS = {"drain": "{role}-drain", "include": "worker-include", "add": "server-add"}

Place = tuple[int, str, int]
"""A process by job, role and index."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Residents:
    """The processes of one machine by job, and the data that they share."""

    agent: Agent
    held: Collection[Place]
    moves: Mapping[Place, Move]
    by_job: Mapping[int, list[Place]]
    jobs: Mapping[int, Job]
    elsewhere: tuple[Offer, ...]
    """The offers of the other machines."""


def drain_machines(now: datetime | None = None) -> list[int]:
    """Take the next step of every machine that is being drained; returns the jobs that got a request."""
    now = now or timezone.now()
    requested: list[int] = []
    for agent in scheduling.draining():
        changed = False
        # For a machine that is open again, only processes with an unfinished move are read.
        there = _residents(agent, with_held=agent.scheduling == Agent.Scheduling.DRAINING)
        for job in there.by_job:
            with isolated_step("draining a machine", job):
                steps = next_steps(_tenant(there, job, now))
                changed |= bool(steps)
                requested += [job for step in steps if _take(agent, job, step, now)]
        if changed:
            ticks.publish(shared(), fleet=True)
    return requested


def preview_of(agent: Agent) -> Preview:
    """A preview of a drain of the machine now."""
    there, now = _residents(agent), timezone.now()
    found = (_readable_tenant(there, job, now) for job in there.by_job)
    return preview(
        [each for each in found if not each.is_over],
        there.elsewhere,
        worker_s=scheduling.move_seconds("worker"),
        server_s=scheduling.move_seconds("server"),
    )


def _residents(agent: Agent, *, with_held: bool = True) -> _Residents:
    """The jobs with processes on the machine, or with an unfinished move away from it."""
    rows = Reservation.objects.filter(agent=agent) if with_held else ()
    held = {(row.job_id, row.role, row.index) for row in rows}
    moves = {(row.job_id, row.role, row.index): row for row in scheduling.open_moves([agent.pk])}
    by_job: dict[int, list[Place]] = defaultdict(list)
    for key in sorted(held | set(moves), key=lambda key: (key[0], key[1] != "worker", key[2])):
        by_job[key[0]].append(key)
    return _Residents(
        agent=agent,
        held=held,
        moves=moves,
        by_job=by_job,
        jobs=Job.objects.in_bulk(list(by_job)),
        elsewhere=tuple(offer for offer in slots_now().offers if offer.machine != agent.pk),
    )


def _readable_tenant(there: _Residents, job: int, now: datetime) -> Tenant:
    """As ``_tenant``, for a preview, which also lists jobs with an unreadable spec."""
    try:
        return _tenant(there, job, now)
    except UnreadableSpec:
        return Tenant(job=job, residents=_unread(there, job), runs=False, is_readable=False)


def _unread(there: _Residents, job: int) -> tuple[Resident, ...]:
    """A job's processes on the machine, without reading its spec."""
    return tuple(
        Resident(role=_role(key[1]), index=key[2], stage=_stage(there.moves.get(key))) for key in there.by_job[job]
    )


def _tenant(there: _Residents, number: int, now: datetime) -> Tenant:
    """One job with its processes on the machine.

    Raises:
        UnreadableSpec: if its stored spec is not valid in this release.
    """
    job = there.jobs.get(number)
    if job is None or job.is_over:
        return Tenant(job=number, residents=_unread(there, number), runs=False, is_over=True)
    spec, request = stored_spec(job), slot_request_of(job)
    live = list(Process.objects.filter(job=job, ended_at=None).exclude(state__in=PROCESS_OVER))
    here = {(row.role, row.index) for row in live if row.agent_id == there.agent.pk}
    ready = {(row.role, row.index) for row in live if row.state == ProcessState.READY}
    residents = tuple(
        _resident(
            key,
            there.moves.get(key),
            now,
            runs_here=key[1:] in here,
            holds_here=key in there.held,
            is_ready=key[1:] in ready,
        )
        for key in there.by_job[number]
    )
    fitting = [offer for offer in there.elsewhere if request.fits(offer)]
    return Tenant(
        job=number,
        residents=residents,
        runs=job.state in RUNS,
        least=spec.workers if spec.attached else spec.elastic.minimum_workers or 1,
        workers=sum(row.role == "worker" for row in live),
        servers=sum(row.role == "server" and row.state != ProcessState.ORDERED for row in live),
        free_servers=sum(offer.free_servers for offer in fitting),
        labels=request.labels,
        team=request.team,
    )


def _resident(
    key: Place, move: Move | None, now: datetime, *, runs_here: bool, holds_here: bool, is_ready: bool
) -> Resident:
    return Resident(
        role=_role(key[1]),
        index=key[2],
        stage=_stage(move),
        waited_s=(now - move.asked_at).total_seconds() if move else 0.0,
        declined=bool(move and move.entry) and _answer(key[0], move) is not None,
        runs_here=runs_here,
        holds_here=holds_here,
        runs_elsewhere=is_ready,  # read for a worker that had left
        servers_before=move.servers_before if move else 0,
    )


def _answer(job: int, move: Move | None) -> Decision | None:
    """The engine's rejection of the last request."""
    entry = move.entry if move else ""
    return Decision.objects.filter(job_id=job, kind=DECLINE, cause=entry).first()


def _take(agent: Agent, job: int, step: Step, now: datetime) -> bool:
    """Store the step, and send its request to the job; returns whether one was sent."""
    resident = step.resident
    entry = _ask(agent, job, step) if step.ask else ""
    if entry is None:
        return False
    fields = {"stage": step.stage, "note": step.why, "servers_before": resident.servers_before, "entry": entry}
    over = step.stage in (Stage.MOVED, Stage.GONE)
    fields |= {"asked_at": now, "ended_at": now if over else None}
    key = {"agent": agent, "job_id": job, "role": resident.role, "index": resident.index, "ended_at": None}
    if not Move.objects.filter(**key).update(**fields):
        Move.objects.create(**key | fields, began_at=now)
    logger.info("drain", machine=agent.name, job=job, process=resident.title, stage=step.stage, requested=step.ask)
    return bool(step.ask)


def _ask(agent: Agent, number: int, step: Step) -> str | None:
    """Append the request to the job's log; returns the id of the entry, or None if the job accepts none now."""
    resident, actor = step.resident, f"drain of {agent.name}"
    event: DrainRequested | InclusionRequested | ServerRequested
    match step.ask:
        case "drain":
            event = DrainRequested(actor=actor, role=resident.role, index=resident.index)
        case "include":
            event = InclusionRequested(actor=actor, rank=resident.index)
        case _:
            event = ServerRequested(actor=actor)
    job = Job.objects.get(pk=number)
    action = ACTIONS[step.ask or "add"].format(role=resident.role)
    detail = {} if step.ask == "add" else {"process": resident.title}
    try:
        with transaction.atomic():  # a request that cannot be audited is not executed
            row = audit(actor=actor, action=action, subject=str(job), detail=detail, job=job)
            row.entry = log.append_event(number, event)
            row.save(update_fields=["entry"])
    except log.LogClosed:  # it is over, or its log is being recovered: the next pass decides
        return None
    return row.entry


def _stage(move: Move | None) -> Stage | None:
    return Stage(move.stage) if move else None


def _role(text: str) -> Role:
    return "worker" if text == "worker" else "server"
