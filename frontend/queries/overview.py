"""Reads the overview: tiles, current jobs, and the latest events."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet
from redis.exceptions import RedisError

from controlplane.core.states import JOB_OVER, JobState
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Decision, Flag
from controlplane.jobs.selectors import submitted_jobs
from controlplane.jobs.viewing import visible
from controlplane.runtime.dead_letters import job_warnings
from controlplane.runtime.ingest_health import history
from controlplane.runtime.redis import shared
from controlplane.runtime.redis_memory import redis_memory
from controlplane.telemetry.present_costs import pressing
from frontend.queries.cache import of_job
from frontend.queries.costs import lost_now
from frontend.queries.fleet import MachineCard
from frontend.queries.job import KINDS, notable, of_kinds
from frontend.queries.jobs import JobLine, lines, speed
from frontend.queries.legible import legible
from frontend.queries.wording import counted, describe

LIVE_JOBS = 12
LAST_JOBS = 5
EVENTS = 12
"""Maximum number of rows, to match the height of the machines and jobs of a small cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Summary numbers of the cluster."""

    machines_online: int
    machines: int
    slots_taken: int
    slots: int
    jobs_running: int
    jobs_queued: int
    samples_per_second: float
    waiting_share: float | None
    coordination_share: float | None
    """Waiting for other workers and for the control plane, as fractions of worker time of running jobs, over their last
    iterations."""
    flags: int
    as_of: datetime | None = None
    """The time of these values, if history is behind."""

    @property
    def lost_share(self) -> float | None:
        """Waiting plus coordination."""
        return None if self.waiting_share is None else self.waiting_share + (self.coordination_share or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDecision:
    """The last decision, in any job."""

    at: datetime
    job: int
    job_name: str
    what: str
    reason: str
    incarnation: int
    sequence: int

    @property
    def before(self) -> int:
        """The value of ``before`` in the URL with which the log starts at this decision."""
        return self.sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """One event of a job or a machine."""

    at: datetime
    kind: str
    what: str
    reason: str
    job: int | None = None
    job_name: str = ""


def history_notice() -> str:
    """A notice about ingest errors or Redis memory; empty if there are none."""
    try:
        return " ".join(
            warning
            for warning in (history(shared()).sentence, redis_memory(shared()).sentence, job_warnings(shared()))
            if warning
        )
    except (RedisError, RuntimeError) as error:
        return f"Redis is unreachable, so this page does not update: {error}"


def overview_jobs(now: datetime) -> list[JobLine]:
    """Unfinished jobs, then the last finished ones."""
    submitted = submitted_jobs()
    live = list(submitted.exclude(state__in=JOB_OVER)[:LIVE_JOBS])
    over = list(submitted.filter(state__in=JOB_OVER)[:LAST_JOBS])
    return lines([*live, *over], now)


def tiles(machines: list[MachineCard], lines: list[JobLine], now: datetime) -> Tiles:
    """The totals of all jobs and machines, including those that are not shown."""
    running = submitted_jobs().exclude(state__in=[*JOB_OVER, JobState.SUBMITTED])
    others = running.exclude(pk__in=[line.id for line in lines])
    waiting, coordination = lost_now()
    return Tiles(
        machines_online=sum(card.online for card in machines),
        machines=len(machines),
        slots_taken=sum(card.taken for card in machines if card.online),
        slots=sum(card.worker_slots for card in machines if card.online),
        jobs_running=running.count(),
        jobs_queued=submitted_jobs().filter(state=JobState.SUBMITTED).count(),
        samples_per_second=sum(line.samples_per_second or 0.0 for line in lines if not line.over)
        + sum(legible(job, lambda job: of_job("speed", job, lambda job: speed(job, now)))[0] or 0.0 for job in others),
        waiting_share=waiting,
        coordination_share=coordination,
        as_of=min((line.as_of for line in lines if line.as_of), default=None),
        flags=len(pressing(_open_flags(), now)),
    )


def _open_flags() -> "QuerySet[Flag]":
    return visible(Flag.objects.filter(closed_at=None), "job__team").exclude(job__state__in=JOB_OVER)


def last_decision() -> LastDecision | None:
    """The latest decision about roster, shares, placement, policies, flags or state.

    Consequential decisions, mainly about processes and slots, and simulated runs are omitted.
    """
    rows = Decision.objects.filter(kind__in=(*KINDS["key"], *KINDS["shares"]), job__simulation=None)
    row = visible(rows, "job__team").select_related("job").order_by("-id").first()
    if row is None:
        return None
    return LastDecision(
        at=row.at,
        job=row.job_id,
        job_name=row.job.name,
        what=describe(row.kind, row.payload, _shares_before(row)),
        reason=row.reason,
        incarnation=row.incarnation,
        sequence=row.sequence,
    )


def _shares_before(row: Decision) -> dict[str, int]:
    """The previous shares, if the decision is about shares."""
    if row.kind != "set-shares":
        return {}
    earlier = Decision.objects.filter(job=row.job_id, kind="set-shares", pk__lt=row.pk).order_by("-id")
    payload = earlier.values_list("payload", flat=True).first()
    return payload.get("shares", {}) if payload else {}


def events() -> list[EventLine]:
    """The latest events: decisions, and lost machines."""
    return sorted([*_decided(), *_offline()], key=lambda event: event.at, reverse=True)[:EVENTS]


def newest_job() -> int | None:
    """The job whose decisions are linked from the events."""
    return submitted_jobs().values_list("id", flat=True).first()


def _offline() -> list[EventLine]:
    """Machines that went offline, each since it was last seen."""
    gone = visible(Agent.objects.filter(state=Agent.State.OFFLINE, seen_at__isnull=False)).order_by("-seen_at")[:EVENTS]
    return [
        EventLine(
            at=agent.seen_at,
            kind="machine-offline",
            what=f"{agent.name} is offline",
            reason=f"its connection ended; unavailable: {counted(len(agent.slots), 'worker slot')}"
            f" and {counted(agent.server_slots, 'server slot')}",
        )
        for agent in gone
        if agent.seen_at is not None
    ]


def _decided() -> list[EventLine]:
    """The latest decisions of all jobs without share decisions; a loss is listed once."""
    rows = (
        visible(Decision.objects.filter(of_kinds("key"), job__simulation=None), "job__team")
        .exclude(kind="raise-flag", payload__kind="lost")
        .select_related("job")
        .order_by("-id")[: 3 * EVENTS]
    )
    return [
        EventLine(
            at=row.at,
            job=row.job_id,
            job_name=row.job.name,
            kind=row.kind,
            what=describe(row.kind, row.payload),
            reason=row.reason,
        )
        for row in notable(list(rows))[:EVENTS]
    ]
