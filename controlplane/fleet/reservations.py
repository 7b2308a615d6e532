"""The slots that jobs hold: reserved, transferred to a new instance, and released.

The database enforces every claim: a slot has one process, and a process one slot, under any concurrency.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from django.db import IntegrityError, transaction

from controlplane.core.events import Assignment
from controlplane.fleet.models import Agent, Reservation
from controlplane.fleet.selectors import accepting, slots_now
from controlplane.protocol.energy import labelled_power
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Emulation
from controlplane.scheduling.queueing import Offer, Take

ASSIGNED: Final = ("slots", "labels", "added_labels", "host")
"""What an assignment contains of its machine."""


def reserve_slots(job_id: int, takes: Sequence[Take], *, enough: int) -> list[Assignment] | None:
    """Reserve these slots for the job's workers and servers; None if not all are still free, or there are none.

    A job that already holds ``enough`` slots gets the same ones again: the caller may have crashed after its request.
    """
    try:
        with transaction.atomic():
            held = _held_by(job_id)
            if len(held) >= enough:
                return held
            release_slots(job_id)  # slots that remain after an agent was deleted
            return _reserve(job_id, takes)
    except IntegrityError:
        return None  # another process was faster: the scheduler retries


def replace_slot(
    job_id: int,
    labels: Mapping[str, str],
    role: Role,
    index: int,
    offers: Sequence[Offer] | None = None,
    *,
    team: int = 0,
    script: bool = False,
) -> Assignment | None:
    """A slot for a process to restart: its own if that machine is online and not being drained, otherwise
    another one; None if there is none.

    Running jobs come before jobs in the queue. ``offers`` are recent ones,
    for callers that request several slots.
    """
    try:
        with transaction.atomic():
            mine = Reservation.objects.filter(job_id=job_id, role=role, index=index)
            if (
                mine.filter(agent__state=Agent.State.ONLINE)
                .exclude(agent__scheduling=Agent.Scheduling.DRAINING)
                .exists()
            ):
                return _assigned(list(mine))[0]
            for offer in slots_now().offers if offers is None else offers:
                if not offer.free(role) or not offer.accepts(labels, team, script=script):
                    continue
                slots = _free_slots(_locked([offer.machine]), offer.machine, role, 1)
                if slots:
                    mine.delete()
                    row = Reservation(agent_id=offer.machine, role=role, slot=slots[0], job_id=job_id, index=index)
                    row.save()
                    return _assigned([row])[0]
            return None
    except IntegrityError:
        return None  # another process was faster: the scheduler retries


def release_slot(job_id: int, role: Role, index: int) -> int:
    """Free the slot of one process of the job; returns how many slots were freed."""
    return Reservation.objects.filter(job_id=job_id, role=role, index=index).delete()[0]


def release_slots(job_id: int) -> int:
    """Free the slots that the job holds; returns their number."""
    return Reservation.objects.filter(job_id=job_id).delete()[0]


def _reserve(job_id: int, takes: Sequence[Take]) -> list[Assignment] | None:
    agents = _locked([take.machine for take in takes])
    rows: list[Reservation] = []
    roles: tuple[Role, Role] = ("worker", "server")
    for role in roles:
        index = 0
        for take in takes:
            needed = take.workers if role == "worker" else take.servers
            slots = _free_slots(agents, take.machine, role, needed)
            if len(slots) < needed:
                return None
            for slot in slots:
                rows.append(Reservation(agent_id=take.machine, role=role, slot=slot, job_id=job_id, index=index))
                index += 1
    Reservation.objects.bulk_create(rows)
    return _assigned(rows) or None


def _locked(agents: Collection[int]) -> dict[int, Agent]:
    """Agents that take new processes, locked for the transaction in order of id to avoid deadlocks."""
    rows = accepting().filter(pk__in=agents).order_by("id").select_for_update()
    return {agent.pk: agent for agent in rows}


def _free_slots(agents: Mapping[int, Agent], machine: int, role: Role, needed: int) -> list[int]:
    """The first free slots of the machine, by number; possibly fewer, and none if the machine was removed."""
    agent = agents.get(machine)
    if agent is None or not needed:
        return []
    offered = len(agent.slots) if role == "worker" else agent.server_slots
    taken = set(Reservation.objects.filter(agent=machine, role=role).values_list("slot", flat=True))
    return [slot for slot in range(offered) if slot not in taken][:needed]


def _held_by(job_id: int) -> list[Assignment]:
    return _assigned(list(Reservation.objects.filter(job_id=job_id).order_by("-role", "index")))


def _assigned(rows: Sequence[Reservation]) -> list[Assignment]:
    """The assignments in these rows, with each slot's emulation. The slots of each machine are read once."""
    held = {row.agent_id for row in rows if row.role == "worker"}
    agents = {agent.pk: agent for agent in Agent.objects.filter(pk__in=held).only(*ASSIGNED)}
    return list(_assignments(rows, agents))


def _assignments(rows: Sequence[Reservation], agents: Mapping[int, Agent]) -> Iterator[Assignment]:
    for row in rows:
        agent = agents.get(row.agent_id) if row.role == "worker" else None
        offered = agent.slots if agent is not None else []
        emulate = offered[row.slot].get("emulate") if row.slot < len(offered) else None
        yield Assignment(
            role="worker" if row.role == "worker" else "server",
            index=row.index,
            agent=row.agent_id,
            slot=row.slot,
            emulate=msgspec.convert(emulate, Emulation | None),
            power=None if agent is None else labelled_power(agent.placed_by),
            host="" if agent is None else agent.host,
        )
