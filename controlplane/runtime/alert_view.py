"""Reads the data for alert rules: jobs, processes, findings and the control plane itself."""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db.models import F, Max, Sum

from controlplane.alerts.delivery import failing_targets
from controlplane.alerts.shares import Mark
from controlplane.alerts.view import FlagNow, JobNow, Loss, PlaneNow, Skipped, View
from controlplane.core.attached import GONE_MS
from controlplane.core.recovery import DIVERGED
from controlplane.core.states import JOB_OVER, RANKS_AWAITED, JobState, ProcessState
from controlplane.jobs.flag_notes import notes_on
from controlplane.jobs.machines import machine_name
from controlplane.jobs.models import Decision, Flag, Job, Process
from controlplane.runtime.freshness import copying
from controlplane.runtime.ingest_health import history
from controlplane.runtime.redis import Client
from controlplane.runtime.redis_memory import redis_memory
from controlplane.telemetry.models import WorkerSums
from controlplane.telemetry.present_costs import present_costs, present_evidence

LOOK_BACK: Final = timedelta(minutes=30)
"""Events older than both this and the last evaluation are ignored. Longer than any delay of ingest."""

LOSS_STAYS: Final = timedelta(seconds=30)
"""A lost process with a successor counts as lost for this long, so that a late evaluation still sees it."""

GONE: Final = timedelta(milliseconds=GONE_MS)
"""A rank that its launcher owns counts as lost once it has been out of reach for this long."""

BACK: Final = frozenset({ProcessState.READY, ProcessState.FINISHED, ProcessState.STOPPED})
PARTS: Final = ("data_s", "compute_s", "push_s", "pull_s", "waiting_s", "coordination_s")


def read_view(client: Client, now: datetime, before: datetime | None) -> View:
    """The data for all rules; ``before`` is the last evaluation."""
    since = min(before or now, now) - LOOK_BACK
    live = Job.objects.filter(simulation=None).exclude(state__in=JOB_OVER)
    ended = Job.objects.filter(simulation=None, state__in=JOB_OVER, finished_at__gt=since)
    jobs = [*live.select_related("submitted_by"), *ended.select_related("submitted_by")]
    numbers = [job.pk for job in jobs if job.state not in JOB_OVER]
    last_report_ms = dict(
        WorkerSums.objects.filter(job__in=numbers).order_by().values_list("job_id").annotate(at_ms=Max("at_ms"))
    )
    plane = _plane(client)  # before the jobs: if ingest writes in between, they only look more current
    return View(
        now=now,
        jobs={job.pk: _job(job, last_report_ms.get(job.pk)) for job in jobs},
        losses=tuple(_losses(numbers, {job.pk for job in jobs if job.launch == "attached"}, now, since + LOOK_BACK)),
        flags=tuple(_flags(numbers, now)),
        skipped=tuple(_skipped([job.pk for job in jobs], since)),
        plane=plane,
    )


def with_shares(view: View, marks: Mapping[int, Mark]) -> View:
    """The view with each job's share of waiting."""
    shares = {job: mark.share for job, mark in marks.items()}
    jobs = {number: replace(job, waiting_share=shares.get(number)) for number, job in view.jobs.items()}
    return replace(view, jobs=jobs)


def waiting_sums(jobs: Collection[int]) -> dict[int, tuple[float, float]]:
    """Waiting and whole time of all workers of each job that has reported."""
    whole = sum((F(name) for name in PARTS[1:]), F(PARTS[0]))
    rows = WorkerSums.objects.filter(job__in=jobs).order_by().values_list("job_id")
    found = rows.annotate(waiting=Sum("waiting_s"), whole=Sum(whole))
    return {job: (float(waiting), float(all_s)) for job, waiting, all_s in found}


def _job(job: Job, last_report_ms: int | None) -> JobNow:
    at = datetime.fromtimestamp(last_report_ms / 1000, UTC) if last_report_ms else None
    known = [each for each in (at, job.started_at, job.state_since) if each is not None]
    awaits_ranks = job.state == JobState.PAUSED and job.launch == "attached" and job.awaited.startswith(RANKS_AWAITED)
    is_awaited = job.state in (JobState.STARTING, JobState.RUNNING) or awaits_ranks
    labels = job.spec.get("labels")
    return JobNow(
        name=job.name,
        user=job.submitted_by.get_username() if job.submitted_by else "",
        state=job.state,
        iteration=job.iteration,
        reason=job.reason,
        labels={str(name): str(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
        last_report_at=max(known) if is_awaited else None,
        awaited=job.awaited,
        ended_at=job.finished_at if job.is_over else None,
        has_diverged=job.state == JobState.FAILED and DIVERGED in job.reason,
    )


def _losses(jobs: Collection[int], attached: Collection[int], now: datetime, before: datetime) -> list[Loss]:
    """Lost processes of live jobs, except those replaced longer than ``LOSS_STAYS`` ago."""
    recent = min(now, before) - LOSS_STAYS
    newest: dict[tuple[int, str, int], Process] = {}
    lost: dict[tuple[int, str, int], Process] = {}
    rows = Process.objects.filter(job__in=jobs).select_related("agent").order_by("pk")
    for row in rows.defer("emulate", "block_times", "agent__environment"):
        place = row.job_id, row.role, row.index
        newest[place] = row
        if row.state == ProcessState.LOST and row.job_id not in attached:
            lost[place] = row
    of_agents = [row for place, row in lost.items() if newest[place].state not in BACK or _lost_at(row) >= recent]
    # The engine calls a launcher's rank lost only when another process takes its place, which is its return.
    silent = [row for row in newest.values() if row.job_id in attached and row.state == ProcessState.UNREACHABLE]
    return [_loss(row) for row in [*of_agents, *(row for row in silent if now - row.state_since >= GONE)]]


def _lost_at(row: Process) -> datetime:
    return row.ended_at or row.state_since


def _loss(row: Process) -> Loss:
    return Loss(
        job=row.job_id,
        title=f"{row.role[0]}{row.index}",
        machine=machine_name(row),
        at=_lost_at(row),
        reason=row.reason,
    )


def _flags(jobs: Collection[int], now: datetime) -> list[FlagNow]:
    rows = list(Flag.objects.filter(job__in=jobs, closed_at=None))
    noted, costs = notes_on(rows, now), present_costs(rows)
    return [
        FlagNow(
            job=row.job_id,
            title=row.title,
            kind=row.kind,
            sentence=row.sentence,
            cost=_cost(present_evidence(row, costs)),
        )
        for row in rows
        if row.pk not in noted
    ]


def _cost(evidence: Mapping[str, Any]) -> float:
    """The fraction of an iteration that the finding costs."""
    whole, without = evidence.get("iteration_s"), evidence.get("without_s")
    if not isinstance(whole, int | float) or not isinstance(without, int | float) or whole <= 0:
        return 0.0
    return max(0.0, 1.0 - without / whole)


def _skipped(jobs: Collection[int], since: datetime) -> list[Skipped]:
    rows = Decision.objects.filter(job__in=jobs, kind="skip-checkpoint", at__gt=since)
    return [
        Skipped(job=row.job_id, decision=f"{row.incarnation}-{row.sequence}", at=row.at, reason=row.reason)
        for row in rows
    ]


def _plane(client: Client) -> PlaneNow:
    ingest, memory = history(client), redis_memory(client)
    now_s = float(client.time()[0])
    late_s = max((each.waits_s for each in copying(client).values()), default=0.0)
    stopped_s = now_s - ingest.stopped_since.timestamp() if ingest.stopped_since else 0.0
    disk = shutil.disk_usage(settings.DATA_DIR)
    return PlaneNow(
        ingest_lag_s=max(late_s, stopped_s),
        ingest_sentence=ingest.sentence,
        disk_free=disk.free / disk.total if disk.total else None,
        disk_path=str(settings.DATA_DIR),
        disk_free_bytes=disk.free,
        redis_used=memory.used / memory.limit if memory.limit else None,
        redis_sentence=memory.sentence,
        failing=failing_targets(),
    )
