"""Reads machine cards: slots, load, and workers by job."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import OuterRef, Subquery
from django.utils import timezone

from controlplane.core.states import JOB_OVER, PROCESS_OVER, ProcessState
from controlplane.fleet.models import Agent, AgentSample, Reservation
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.stored_specs import stored_specs
from controlplane.jobs.viewing import limits, unlimited, visible
from controlplane.telemetry.present_costs import pressing
from frontend.formats import percent
from frontend.queries.cache import of_cluster
from frontend.queries.minute import BusyMinute, busy_lines
from frontend.queries.wording import emulation_title

LOSSES, SHOWN_LOSSES = 200, 4
"""Maximum number of losses that are read in total, and shown per machine."""

SHOWN_SLOTS, SHOWN_FREE = 16, 4
"""Maximum number of slots shown per machine, and of free ones among them if it has more."""

SHOWN_FOR = timedelta(minutes=10)
"""How long a card shows a lost process that was restarted."""

_PROCESS = ("job_id", "role", "index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One worker slot and its worker."""

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
    """A lost worker or server of a current job."""

    title: str
    job: int
    at: datetime | None
    reason: str
    back: bool
    """Whether it has a new instance, on this or another machine."""


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
    unverified: dict[str, str]
    """Labels that the machine itself reports."""
    cpu_count: int
    memory_bytes: int
    cpu: float | None
    memory: float | None
    minute: BusyMinute
    """Busy fraction of its workers per second of the last minute; empty without reports."""
    held: list[Slot]
    """Worker slots that a job holds, by number."""
    free: list[Slot]
    """The first free slots, as many as a card can show."""
    worker_slots: int
    server_slots: int
    servers_taken: int
    part: float
    """The sum of its slots' parts."""
    losses: list[Loss]
    """Lost processes that were not restarted, or only recently; latest first."""
    team: str = ""
    """Its team; empty: none, all users see it."""
    scheduling: str = "open"
    scheduling_reason: str = ""
    scheduling_by: str = ""
    scheduling_since: datetime | None = None

    @property
    def shown_scheduling(self) -> str:
        """``cordoned``, ``draining`` or ``drained``; empty for a machine that takes new processes."""
        if self.scheduling == Agent.Scheduling.DRAINING and not self.taken and not self.servers_taken:
            return "drained"
        return "" if self.scheduling == Agent.Scheduling.OPEN else self.scheduling

    @property
    def taken(self) -> int:
        """Worker slots that a job holds."""
        return len(self.held)

    @property
    def flagged(self) -> bool:
        """Whether any of its workers is flagged."""
        return any(slot.flagged for slot in self.held)

    @property
    def slots(self) -> list[Slot]:
        """The shown slots, by number."""
        return sorted([*self.held[:SHOWN_SLOTS], *self.free], key=lambda slot: slot.number)

    @property
    def more(self) -> str:
        """The number of slots that are not shown, as text; empty if all are."""
        held, free = self.taken - SHOWN_SLOTS, self.worker_slots - self.taken - len(self.free)
        state = "free" if self.online else "offline"
        return " and ".join([f"{held} more in use"] * (held > 0) + [f"{free} more {state}"] * (free > 0))

    @property
    def part_of_more(self) -> float:
        """The summed ``part`` of the slots that are not shown."""
        return sum(slot.part for slot in self.held[SHOWN_SLOTS:])

    @property
    def busy(self) -> float | None:
        """The fraction of worker time in the last minute that was busy."""
        return self.minute.busy

    @property
    def minute_sentence(self) -> str:
        """The same as text."""
        known = [part for part in self.minute.line if part is not None]
        return f"between {percent(min(known))} and {percent(max(known))} busy over the last minute" if known else ""

    @property
    def sparklines(self) -> list[str]:
        """SVG polylines in a box of 100 by 24, now at the right: one for each run of known seconds."""
        lines: list[list[str]] = [[]]
        for second, part in enumerate(self.minute.line):
            if part is None:
                lines.append([])
            else:
                x, y = 100 * second / max(1, len(self.minute.line) - 1), 23 - 22 * part
                # A single point would not be visible.
                lines[-1] += (
                    [f"{x:.1f},{y:.1f}"] if lines[-1] else [f"{max(0.0, x - 0.4):.1f},{y:.1f}", f"{x:.1f},{y:.1f}"]
                )
        return [" ".join(points) for points in lines if points]


@dataclass(slots=True)
class _Held:
    """The processes in all machines' slots."""

    workers: dict[tuple[int, int], Process] = field(default_factory=dict)
    reserved: dict[tuple[int, int], Reservation] = field(default_factory=dict)
    servers: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    batches: dict[int, int] = field(default_factory=dict)
    """The global batch of each job whose spec can be read."""
    flagged: set[tuple[int, int]] = field(default_factory=set)
    losses: dict[int, list[Loss]] = field(default_factory=lambda: defaultdict(list))


def machines(now: datetime) -> list[MachineCard]:
    """All machines, online ones first, then in order of joining."""
    agents = sorted(
        Agent.objects.select_related("team").order_by("id"), key=lambda agent: agent.state != Agent.State.ONLINE
    )
    held, loads, minutes = _held(agents, now), _loads(agents), busy_lines(agents, now)
    return [_card(agent, held, loads.get(agent.pk), minutes.get(agent.pk, BusyMinute())) for agent in agents]


def machines_now() -> list[MachineCard]:
    """The same at the last tick, read once for all viewers, filtered by what the current user may see."""
    with unlimited():
        cards = of_cluster("machines", lambda: machines(timezone.now()))
    if limits() is None or not cards:
        return cards
    seen = set(visible(Agent.objects.all()).values_list("pk", flat=True))
    jobs = _seen_jobs(cards)
    return [_masked(card, jobs) for card in cards if card.id in seen]


def _seen_jobs(cards: Sequence[MachineCard]) -> set[int]:
    """Jobs on these machines that the viewer may see."""
    rows = Job.objects.filter(pk__in={slot.job for card in cards for slot in card.held})
    return set(visible(rows).values_list("pk", flat=True))


def _masked(card: MachineCard, jobs: set[int]) -> MachineCard:
    """The card without jobs that the viewer may not see."""
    if all(slot.job in jobs for slot in card.held) and not card.losses:
        return card
    held = [
        slot if slot.job in jobs else Slot(number=slot.number, emulated=slot.emulated, part=slot.part)
        for slot in card.held
    ]
    return replace(card, held=held, losses=[loss for loss in card.losses if loss.job in jobs])


def machine(agent: Agent, now: datetime) -> MachineCard:
    """One machine."""
    card = _card(agent, _held([agent], now), _loads([agent]).get(agent.pk), BusyMinute())
    return card if limits() is None else _masked(card, _seen_jobs([card]))


def _held(agents: Sequence[Agent], now: datetime) -> _Held:
    held = _Held(losses=_losses(agents, now))
    for row in Reservation.objects.filter(agent__in=agents):
        if row.role == "worker":
            held.reserved[row.agent_id, row.slot] = row
        else:
            held.servers[row.agent_id] += 1
    live = Process.objects.filter(agent__in=agents, role="worker").exclude(state__in=PROCESS_OVER)
    for process in live.order_by("started_at"):
        held.workers[process.agent_id or 0, process.slot] = process
    jobs = {process.job_id for process in held.workers.values()}
    specs, _ = stored_specs(Job.objects.filter(pk__in=jobs).only("name", "spec"))
    held.batches = {job: spec.global_batch for job, spec in specs.items()}
    flags = Flag.objects.filter(job__in=jobs, subject="worker", closed_at=None)
    held.flagged = {(flag.job_id, flag.rank) for flag in pressing(flags, now)}
    return held


def _losses(agents: Sequence[Agent], now: datetime) -> dict[int, list[Loss]]:
    """Losses of current jobs, by machine."""
    lost = Process.objects.filter(agent__in=agents, state=ProcessState.LOST).exclude(job__state__in=JOB_OVER)
    rows = list(lost.order_by("-ended_at", "-id")[:LOSSES])
    instances = Process.objects.filter(job__in={row.job_id for row in rows})
    latest = {
        instance[:3]: instance[3] for instance in instances.order_by("started_at", "id").values_list(*_PROCESS, "id")
    }
    found: dict[int, list[Loss]] = defaultdict(list)
    for row in rows:
        back = latest[row.job_id, row.role, row.index] != row.pk
        if not back or (row.ended_at is not None and now - row.ended_at < SHOWN_FOR):
            title = f"{row.role[:1]}{row.index}"
            loss = Loss(title=title, job=row.job_id, at=row.ended_at, reason=row.reason, back=back)
            found[row.agent_id or 0].append(loss)
    return found


def _loads(agents: Sequence[Agent]) -> dict[int, AgentSample]:
    """The latest sample of each online machine."""
    own = AgentSample.objects.filter(agent=OuterRef("pk")).order_by("-at").values("pk")[:1]
    here = Agent.objects.filter(pk__in=[agent.pk for agent in agents if agent.state == Agent.State.ONLINE])
    newest = here.annotate(newest=Subquery(own)).values_list("newest", flat=True)
    return {row.agent_id: row for row in AgentSample.objects.filter(pk__in=list(newest))}


def _card(agent: Agent, held: _Held, load: AgentSample | None, minute: BusyMinute) -> MachineCard:
    numbers = range(len(agent.slots))
    taken = [number for number in numbers if (agent.pk, number) in held.workers or (agent.pk, number) in held.reserved]
    most = SHOWN_FREE if len(numbers) > SHOWN_SLOTS else SHOWN_SLOTS
    vacant = sorted(set(numbers).difference(taken))[: max(0, min(most, SHOWN_SLOTS - len(taken)))]
    slots = [_slot(agent, number, agent.slots[number], held) for number in taken]
    return MachineCard(
        id=agent.pk,
        name=agent.name,
        online=agent.state == Agent.State.ONLINE,
        host=agent.host,
        version=agent.version,
        seen_at=agent.seen_at,
        labels=agent.placed_by,
        unverified=dict(agent.unverified_labels),
        cpu_count=agent.cpu_count,
        memory_bytes=agent.memory_bytes,
        cpu=load.cpu if load else None,
        memory=load.memory if load else None,
        minute=minute,
        held=slots,
        free=[_slot(agent, number, agent.slots[number], held) for number in vacant],
        worker_slots=len(agent.slots),
        server_slots=agent.server_slots,
        servers_taken=held.servers.get(agent.pk, 0),
        part=sum(slot.part for slot in slots),
        losses=held.losses.get(agent.pk, [])[:SHOWN_LOSSES],
        team=agent.team.name if agent.team else "",
        scheduling=agent.scheduling,
        scheduling_reason=agent.scheduling_reason,
        scheduling_by=agent.scheduling_by,
        scheduling_since=agent.scheduling_since,
    )


def _slot(agent: Agent, number: int, offer: dict[str, Any], held: _Held) -> Slot:
    emulated = emulation_title(offer.get("emulate"))
    process, reserved = held.workers.get((agent.pk, number)), held.reserved.get((agent.pk, number))
    if process is not None:
        batch = held.batches.get(process.job_id)
        return Slot(
            number=number,
            emulated=emulated,
            job=process.job_id,
            rank=process.index,
            share=process.share,
            part=process.share / batch if batch else 0.0,
            flagged=(process.job_id, process.index) in held.flagged,
        )
    if reserved is not None:
        return Slot(number=number, emulated=emulated, job=reserved.job_id, rank=reserved.index)
    return Slot(number=number, emulated=emulated)
