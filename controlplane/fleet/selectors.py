"""Reads of the fleet: who an agent is, and which slots are free."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from django.db.models import QuerySet

from controlplane.fleet.models import Agent, Reservation
from controlplane.protocol.keys import secret_digest
from controlplane.protocol.orders import Role
from controlplane.protocol.spec import Emulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A slot of an agent."""

    agent: int
    slot: int
    emulate: Emulation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Free slots of the machines that count, agents in order of id and slots by number."""

    workers: list[Place] = field(default_factory=list)
    servers: list[Place] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the machines that carry given labels offer, and what of it is free."""

    online: int
    matching: int
    workers: int
    servers: int
    free_workers: int
    free_servers: int


def digest(secret: str) -> str:
    """What is stored of a token or credential. They are random and long, so a plain hash is enough."""
    return secret_digest(secret)


def agents() -> QuerySet[Agent]:
    """Every agent that has joined, in order of joining."""
    return Agent.objects.order_by("id").prefetch_related("reservations")


def agent_by_credential(credential: str) -> Agent | None:
    """The agent whose credential this is; one that it has not been known to keep does not count."""
    return Agent.objects.filter(credential_digest=digest(credential)).first()


def free_places(labels: Mapping[str, str], *, lock: bool = False) -> Places:
    """The slots that a job asking for ``labels`` could have now; ``lock`` holds their agents for the transaction."""
    online = Agent.objects.filter(state=Agent.State.ONLINE).order_by("id")
    matching = [agent for agent in (online.select_for_update() if lock else online) if carries(agent, labels)]
    taken = set(Reservation.objects.values_list("agent_id", "role", "slot"))
    return Places(
        workers=[place for agent in matching for place in _offered(agent, "worker", taken)],
        servers=[place for agent in matching for place in _offered(agent, "server", taken)],
    )


def capacity(labels: Mapping[str, str]) -> Capacity:
    """What the machines that carry ``labels`` offer, for the sentence that says why a job waits."""
    online = list(Agent.objects.filter(state=Agent.State.ONLINE))
    matching = [agent for agent in online if carries(agent, labels)]
    free = free_places(labels)
    return Capacity(
        online=len(online),
        matching=len(matching),
        workers=sum(len(agent.slots) for agent in matching),
        servers=sum(agent.server_slots for agent in matching),
        free_workers=len(free.workers),
        free_servers=len(free.servers),
    )


def carries(agent: Agent, labels: Mapping[str, str]) -> bool:
    """Whether the agent has every one of ``labels`` with that value."""
    return all(agent.labels.get(key) == value for key, value in labels.items())


def _offered(agent: Agent, role: Role, taken: set[tuple[int, str, int]]) -> list[Place]:
    emulations = [slot.get("emulate") for slot in agent.slots] if role == "worker" else [None] * agent.server_slots
    return [
        Place(agent=agent.pk, slot=slot, emulate=msgspec.convert(emulate, Emulation | None))
        for slot, emulate in enumerate(emulations)
        if (agent.pk, role, slot) not in taken
    ]
