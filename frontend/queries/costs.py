"""Reads the largest current losses of worker time, with suggested policy changes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from controlplane.core import hangs
from controlplane.core.states import JobState
from controlplane.jobs.machines import ON_MACHINES, machine_name
from controlplane.jobs.models import Flag, Job, Process
from controlplane.jobs.selectors import submitted_jobs
from controlplane.jobs.stored_specs import UnreadableSpec
from controlplane.telemetry.metrics import BUSY, ITERATION
from frontend.figures.costs import Absent, Cost, JobPace, costs
from frontend.queries.advice import Advice, advice
from frontend.queries.cache import of_job
from frontend.queries.fleet import MachineCard
from frontend.queries.history import History
from frontend.queries.legible import legible
from frontend.queries.waiting import price

RECENT: Final = 10
"""Iterations over which a job's waiting is measured; templates name this number."""

JOBS: Final = 50
"""Maximum number of running jobs considered, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """One cost with its price and the suggested policy change."""

    cost: Cost
    price: str
    """Per hour; empty if no price is set."""
    advice: Advice | None


def greatest(machines: Sequence[MachineCard], now: datetime) -> list[CostLine]:
    """At most three costs, largest first."""
    running = _running()
    hung = set(Flag.objects.filter(job__in=running, kind=hangs.HANG, closed_at=None).values_list("job_id", flat=True))
    jobs = {job.pk: job for job in running}
    found = costs([_with_hang(pace, hung) for pace in _paces(running)], _absent(machines))
    return [
        CostLine(
            cost=cost,
            price=price(3600 * cost.workers),
            advice=_advice(jobs[cost.job], now) if cost.job is not None and cost.kind == "waiting" else None,
        )
        for cost in found
    ]


def lost_now() -> tuple[float | None, float | None]:
    """Waiting and coordination as fractions of worker time, over the same iterations as the costs."""
    paces = _paces(_running())
    workers = sum(pace.workers for pace in paces)
    if not workers:
        return None, None
    return (
        sum(pace.waiting * pace.workers for pace in paces) / workers,
        sum(pace.coordination * pace.workers for pace in paces) / workers,
    )


def _running() -> list[Job]:
    return list(submitted_jobs().filter(state=JobState.RUNNING, iteration__gt=0)[:JOBS])


def _paces(running: Sequence[Job]) -> list[JobPace]:
    return [pace for job in running if (pace := legible(job, lambda job: of_job("pace", job, _pace))[0]) is not None]


def _advice(job: Job, now: datetime) -> Advice | None:
    """The advice; None for a job whose spec cannot be read, so that it does not hide the others."""
    with suppress(UnreadableSpec):
        return advice(job, now, waits=False)
    return None


def _pace(job: Job) -> JobPace | None:
    found = {rank: block for rank, block in History(job).latest(ITERATION, RECENT).items() if len(block["waiting_s"])}
    whole = sum(float(block[name].sum()) for block in found.values() for name in ITERATION)
    if not whole:
        return None
    own = {rank: sum(float(block[name].mean()) for name in BUSY) for rank, block in found.items()}
    slowest = max(own, key=lambda rank: (own[rank], -rank))
    row = Process.objects.filter(ON_MACHINES, job=job, role="worker", index=slowest).order_by("-id").first()
    return JobPace(
        job=job.pk,
        name=job.name,
        workers=len(found),
        waiting=sum(float(block["waiting_s"].sum()) for block in found.values()) / whole,
        coordination=sum(float(block["coordination_s"].sum()) for block in found.values()) / whole,
        slowest=slowest,
        machine=machine_name(row) if row is not None else "",
        machine_id=row.agent_id if row is not None else None,
    )


def _with_hang(pace: JobPace, hung: set[int]) -> JobPace:
    return replace(pace, hangs=True) if pace.job in hung else pace


def _absent(machines: Sequence[MachineCard]) -> list[Absent]:
    """Offline machines, if any job waits for slots."""
    if not submitted_jobs().filter(state=JobState.SUBMITTED).exists():
        return []
    return [
        Absent(machine_id=card.id, name=card.name, slots=card.worker_slots)
        for card in machines
        if not card.online and card.seen_at is not None and card.worker_slots
    ]
