"""Reserves slots that running jobs request, in a separate task; the result is an event.

A task may be lost or run twice: the engine repeats its request, and a job that already holds the slot gets it again.
"""

from collections.abc import Sequence
from typing import Final

import structlog
from celery import current_app

from controlplane.core.commands import AnyCommand, RequestSlot
from controlplane.core.events import SlotRefused, SlotsAssigned
from controlplane.fleet.reservations import release_slot, replace_slot
from controlplane.fleet.selectors import capacity
from controlplane.jobs.models import Job
from controlplane.jobs.queue import slot_request_of
from controlplane.protocol.orders import Role
from controlplane.runtime import log
from controlplane.scheduling.queueing import SlotRequest

RESERVE: Final = "controlplane.runtime.tasks.reserve_slot"

logger = structlog.get_logger(__name__)


def request_slots(job: int, commands: Sequence[AnyCommand]) -> None:
    """Queue a task for every requested slot; call it after the commit of the commands."""
    for command in commands:
        if isinstance(command, RequestSlot):
            current_app.send_task(RESERVE, args=(job, command.role, command.index))


def reserve(job: int, role: Role, index: int) -> None:
    """Reserve a slot, and append the result to the job's log."""
    request = slot_request_of(Job.objects.get(pk=job))
    assignment = replace_slot(job, request.labels, role, index, team=request.team, script=request.script)
    event = SlotRefused(role=role, index=index, reason=_why(request, role)) if assignment is None else None
    try:
        log.append_event(job, event or SlotsAssigned(assignments=[assignment] if assignment else []))
    except log.LogClosed:
        release_slot(job, role, index)
        logger.info("job was over before it got another slot", job=job, role=role, index=index)


def _why(request: SlotRequest, role: Role) -> str:
    there, labels = capacity(request.labels, team=request.team, script=request.script), request.labels
    where = f" with labels {', '.join(f'{key}={value}' for key, value in sorted(labels.items()))}" if labels else ""
    where += " that run scripts" if request.script else ""
    slots, free = (there.workers, there.free_workers) if role == "worker" else (there.servers, there.free_servers)
    return f"online machines{where} have {slots} {role} slots, {free} of them free"
