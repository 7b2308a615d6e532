"""Machines as cards: what each offers, how loaded it is, and what it does for which job."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from controlplane.core.states import JOB_OVER, PROCESS_OVER, ProcessState
from controlplane.fleet.models import Agent, AgentSample, Reservation
from controlplane.jobs.models import Flag, Process
from controlplane.protocol.spec import parse_spec
from frontend.queries.wording import emulation_told

MACHINES = 200
SAMPLES = 30
"""Points of a card's sparkline: five minutes."""

LOSSES, SHOWN_LOSSES = 200, 4
"""That are looked at in all, and shown of one machine."""

TOLD_FOR = timedelta(minutes=10)
"""So long a card says that a process was lost which is back."""

_LIFE = ("job_id", "role", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One worker slot and what is in it."""

    number: int
    emulated: str
    job: int | None = None
    rank: int | None = None
    share: int = 0
    part: float = 0.0
    """Its share as a part of its job's global batch."""
    flagged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A worker or server that was lost here, while its job runs."""

    title: str
    job: int
    at: datetime | None
    reason: str
    back: bool
    """Whether it has another life by now, here or elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCard:
    """One machine."""

    id: int
    name: str
    online: bool
    host: str
    version: str
    seen_at: datetime | None
    labels: dict[str, str]
    cpu_count: int
    memory_bytes: int
    cpu: float | None
    memory: float | None
    history: list[float]
    slots: list[Slot]
    server_slots: int
    servers_taken: int
    part: float
    """The sum of its slots' parts."""
    losses: list[Loss]
    """The latest first: those that are not back, and for a while those that are."""

    @property
    def taken(self) -> int:
        """Worker slots that a job holds."""
        return sum(slot.job is not None for slot in self.slots)

    @property
    def flagged(self) -> bool:
        """Whether a worker on it is flagged."""
        return any(slot.flagged for slot in self.slots)

    @property
    def sparkline(self) -> str:
        """Points of an SVG polyline in a box of 100 by 24, the newest at the right."""
        step = 100 / max(1, len(self.history) - 1)
        return " ".join(f"{index * step:.1f},{23 - 22 * value:.1f}" for index, value in enumerate(self.history))


@dataclass(slots=True)
class _Held:
    """What the slots of all machines hold."""

    workers: dict[tuple[int, int], Process] = field(default_factory=dict)
    reserved: dict[tuple[int, int], Reservation] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    flagged: set[tuple[int, int]] = field(default_factory=set)
    losses: dict[int, list[Loss]] = field(default_factory=lambda: defaultdict(list))


def machines(now: datetime) -> list[MachineCard]:
    """Every machine, those online first, then in order of joining."""
    agents = sorted(Agent.objects.order_by("id")[:MACHINES], key=lambda agent: agent.state != Agent.State.ONLINE)
    held, samples = _held(agents, now), _samples(agents)
    return [_card(agent, held, samples.get(agent.pk, [])) for agent in agents]


def machine(agent: Agent, now: datetime) -> MachineCard:
    """One machine."""
    return _card(agent, _held([agent], now), _samples([agent]).get(agent.pk, []))


def _held(agents: Sequence[Agent], now: datetime) -> _Held:
    held = _Held(losses=_losses(agents, now))
    for row in Reservation.objects.filter(agent__in=agents):
        if row.role == "worker":
            held.reserved[row.agent_id, row.slot] = row
        else:
            held.servers[row.agent_id] += 1
    live = Process.objects.filter(agent__in=agents, role="worker").exclude(state__in=PROCESS_OVER)
    for process in live.select_related("job").order_by("started_at"):
        held.workers[process.agent_id or 0, process.slot] = process
    jobs = {process.job_id for process in held.workers.values()}
    flags = Flag.objects.filter(job__in=jobs, subject="worker", closed_at=None)
    held.flagged = set(flags.values_list("job_id", "rank"))
    return held


def _losses(agents: Sequence[Agent], now: datetime) -> dict[int, list[Loss]]:
    """By machine, what jobs that go on have lost there."""
    lost = Process.objects.filter(agent__in=agents, state=ProcessState.LOST).exclude(job__state__in=JOB_OVER)
    rows = list(lost.order_by("-ended_at", "-id")[:LOSSES])
    lives = Process.objects.filter(job__in={row.job_id for row in rows})
    latest = {life[:3]: life[3] for life in lives.order_by("started_at", "id").values_list(*_LIFE, "id")}
    found: dict[int, list[Loss]] = defaultdict(list)
    for row in rows:
        back = latest[row.job_id, row.role, row.index] != row.pk
        if not back or (row.ended_at is not None and now - row.ended_at < TOLD_FOR):
            title = f"{row.role[:1]}{row.index}"
            loss = Loss(title=title, job=row.job_id, at=row.ended_at, reason=row.reason, back=back)
            found[row.agent_id or 0].append(loss)
    return found


def _samples(agents: Sequence[Agent]) -> dict[int, list[AgentSample]]:
    """Each machine's last samples, oldest first: as many rows in all as there are points to draw."""
    rows = AgentSample.objects.filter(agent__in=agents).order_by("-at")[: SAMPLES * max(1, len(agents))]
    by_agent: dict[int, list[AgentSample]] = defaultdict(list)
    for row in reversed(rows):
        by_agent[row.agent_id].append(row)
    return {agent: found[-SAMPLES:] for agent, found in by_agent.items()}


def _card(agent: Agent, held: _Held, samples: list[AgentSample]) -> MachineCard:
    slots = [_slot(agent, number, offer, held) for number, offer in enumerate(agent.slots)]
    online = agent.state == Agent.State.ONLINE
    return MachineCard(
        id=agent.pk,
        name=agent.name,
        online=online,
        host=agent.host,
        version=agent.version,
        seen_at=agent.seen_at,
        labels=dict(agent.labels),
        cpu_count=agent.cpu_count,
        memory_bytes=agent.memory_bytes,
        cpu=samples[-1].cpu if samples and online else None,
        memory=samples[-1].memory if samples and online else None,
        history=[sample.cpu for sample in samples],
        slots=slots,
        server_slots=agent.server_slots,
        servers_taken=held.servers.get(agent.pk, 0),
        part=sum(slot.part for slot in slots),
        losses=held.losses.get(agent.pk, [])[:SHOWN_LOSSES],
    )


def _slot(agent: Agent, number: int, offer: dict[str, Any], held: _Held) -> Slot:
    emulated = emulation_told(offer.get("emulate"))
    process, reserved = held.workers.get((agent.pk, number)), held.reserved.get((agent.pk, number))
    if process is not None:
        return Slot(
            number=number,
            emulated=emulated,
            job=process.job_id,
            rank=process.index,
            share=process.share,
            part=process.share / parse_spec(process.job.spec).global_batch,
            flagged=(process.job_id, process.index) in held.flagged,
        )
    if reserved is not None:
        return Slot(number=number, emulated=emulated, job=reserved.job_id, rank=reserved.index)
    return Slot(number=number, emulated=emulated)
