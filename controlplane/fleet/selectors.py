"""Queries of agents and free slots."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Func, IntegerField, Max, Q, QuerySet
from django.utils import timezone

from controlplane.fleet.models import Agent, EnrolmentToken, Reservation
from controlplane.fleet.samples import with_newest
from controlplane.protocol.keys import secret_digest
from controlplane.protocol.orders import Role
from controlplane.scheduling.queueing import Offer


class JsonLength(Func):
    """The length of a JSON list, computed in the database."""

    function = "JSON_ARRAY_LENGTH"
    output_field = IntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **more: Any) -> Any:
        """Use PostgreSQL's name of the function."""
        return self.as_sql(compiler, connection, function="JSONB_ARRAY_LENGTH", **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Slots of one machine that a job holds."""

    job: int
    machine: int
    workers: int
    servers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsNow:
    """Online machines that take new processes, in order of id, and all holders of slots."""

    offers: tuple[Offer, ...]
    holds: tuple[Hold, ...]

    def held_by(self, jobs: Collection[int]) -> Counter[int]:
        """How many slots these jobs hold, also on offline machines; jobs without slots are omitted."""
        sums: Counter[int] = Counter()
        for hold in self.holds:
            if hold.job in jobs:
                sums[hold.job] += hold.workers + hold.servers
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The slots of machines with given labels, and how many of them are free."""

    online: int
    matching: int
    workers: int
    servers: int
    free_workers: int
    free_servers: int


def digest(secret: str) -> str:
    """The hash under which a token or credential is stored. They are random and long, so it needs no salt."""
    return secret_digest(secret)


def agents() -> QuerySet[Agent]:
    """Every agent that has joined, in order of joining, with its last sample."""
    return with_newest(Agent.objects.order_by("id").prefetch_related("reservations"))


def agent_by_credential(credential: str) -> Agent | None:
    """The agent with this credential; an unconfirmed new credential does not count."""
    return Agent.objects.filter(credential_digest=digest(credential)).first()


def accepting() -> QuerySet[Agent]:
    """Machines that take new processes: online, and neither cordoned nor being drained."""
    return Agent.objects.filter(state=Agent.State.ONLINE, scheduling=Agent.Scheduling.OPEN)


def closed_machines() -> QuerySet[Agent]:
    """Machines that are online and take no new processes, in order of name."""
    return Agent.objects.filter(state=Agent.State.ONLINE).exclude(scheduling=Agent.Scheduling.OPEN).order_by("name")


def slots_now() -> SlotsNow:
    """All slots of machines that take new processes, as counts: two queries, however many slots there are."""
    machines = accepting().order_by("id").annotate(worker_slots=JsonLength("slots"))
    rows = machines.values_list(
        "id", "name", "labels", "added_labels", "worker_slots", "server_slots", "team_id", "runs_scripts"
    )
    counts = Reservation.objects.order_by().values_list("agent_id", "role", "job_id").annotate(Count("id"), Max("slot"))
    held = list(counts)
    taken: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, -1])
    for agent, role, _, number, top in held:
        there = taken[agent, role]
        there[:] = there[0] + number, max(there[1], top)

    def free(agent: int, role: Role, offered: int) -> int:
        number, top = taken[agent, role]
        if top >= offered:  # it returned with fewer slots: held ones beyond them occupy none of these
            number = Reservation.objects.filter(agent=agent, role=role, slot__lt=offered).count()
        return offered - number

    offers = tuple(
        Offer(
            machine=agent,
            name=name,
            labels={**added, **labels},
            team=team or 0,
            workers=workers,
            servers=servers,
            free_workers=free(agent, "worker", workers),
            free_servers=free(agent, "server", servers),
            scripts=scripts,
        )
        for agent, name, labels, added, workers, servers, team, scripts in rows
    )
    return SlotsNow(offers=offers, holds=tuple(_holds(held)))


def offer_without_slots(agent: Agent) -> Offer:
    """What jobs a machine accepts, without its slots."""
    return Offer(
        machine=agent.pk,
        name=agent.name,
        labels=agent.placed_by,
        team=agent.team_id or 0,
        scripts=agent.runs_scripts,
        workers=0,
        servers=0,
        free_workers=0,
        free_servers=0,
    )


def slots_at_hand(jobs: Collection[int]) -> set[tuple[int, str, int]]:
    """Job, role and index of processes of these jobs with slots on online machines that are not drained."""
    here = Reservation.objects.filter(job_id__in=jobs, agent__state=Agent.State.ONLINE)
    here = here.exclude(agent__scheduling=Agent.Scheduling.DRAINING)
    return set(here.values_list("job_id", "role", "index"))


def _holds(counts: Iterable[tuple[int, str, int, int, int]]) -> Iterator[Hold]:
    sums: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    for agent, role, job, number, _ in counts:
        sums[job, agent][role] = number
    for (job, agent), by_role in sorted(sums.items()):
        yield Hold(job=job, machine=agent, workers=by_role.get("worker", 0), servers=by_role.get("server", 0))


def capacity(
    labels: Mapping[str, str], now: SlotsNow | None = None, *, team: int = 0, script: bool = False
) -> Capacity:
    """The slots of machines with ``labels`` that take jobs of the team, with a ``script`` if they have one, and how
    many of them are free.
    """
    online = [offer for offer in (now or slots_now()).offers if offer.team in (0, team)]
    matching = [offer for offer in online if offer.accepts(labels, team, script=script)]
    return Capacity(
        online=len(online),
        matching=len(matching),
        workers=sum(offer.workers for offer in matching),
        servers=sum(offer.servers for offer in matching),
        free_workers=sum(offer.free_workers for offer in matching),
        free_servers=sum(offer.free_servers for offer in matching),
    )


def tokens_valid(*, now: datetime | None = None) -> QuerySet[EnrolmentToken]:
    """Enrolment tokens with which a machine can join, or join again, the newest first."""
    usable = Q(used__lt=F("uses")) | Q(uses__gt=1)
    rows = EnrolmentToken.objects.filter(usable, revoked_at=None, expires_at__gt=now or timezone.now())
    return rows.select_related("created_by").order_by("-pk")
