"""Removes old data: details of jobs that ended long ago, resolved alerts, keys, tokens and samples.

Jobs, processes, decisions, flags, scores, rollups and the audit trail are kept. Transactions are short, so that ingest
is not delayed; after an interruption the next run continues.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final

from django.db import models
from django.db.models import Exists, OuterRef, Q
from knox.models import AuthToken

from controlplane.alerts.models import Alert, Delivery, Silence
from controlplane.core.states import JOB_OVER
from controlplane.fleet.models import Agent, AgentSample, EnrolmentToken
from controlplane.jobs.models import Job
from controlplane.people import throttle
from controlplane.people.models import LoginAttempt, Session
from controlplane.runtime.job_failures import isolated_step
from controlplane.telemetry.folding import fold
from controlplane.telemetry.models import (
    Chunk,
    DeadLetter,
    EngineSnapshot,
    LogLine,
    MessageCursor,
    RawEvent,
    ReportBatch,
    Tally,
    WorkerSums,
)

OLDER_THAN: Final = timedelta(days=30)
KEEP_JOBS: Final = 20
ROWS: Final = 1_000
"""Rows per transaction."""

DETAIL: Final[tuple[tuple[str, type[models.Model]], ...]] = (
    ("engine snapshots", EngineSnapshot),
    ("events", RawEvent),
    ("entries set aside", DeadLetter),
    ("report batches", ReportBatch),
    ("chunks", Chunk),
    ("counters", Tally),
    ("counters of workers", WorkerSums),
    ("message numbers", MessageCursor),
    ("log lines", LogLine),
)
"""Age from which on the detail of an ended job is deleted; its rollups stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Age limits: data from before ``before`` is old, except that of the last ``keep_jobs`` ended jobs.

    Simulated runs expire in the same way, but do not count among the last jobs.
    """

    now: datetime
    older_than: timedelta = OLDER_THAN
    keep_jobs: int = KEEP_JOBS

    @property
    def before(self) -> datetime:
        """The time before which data is old."""
        return self.now - self.older_than


def prune(limits: Limits, *, dry_run: bool = False, progress: Callable[[str], None] = lambda _: None) -> dict[str, int]:
    """Delete old data, or only count it; returns the rows of each kind, and the number of jobs."""
    jobs = old_jobs(limits)
    counted = {"jobs": len(jobs), **{name: 0 for name, _ in DETAIL}}
    for job in jobs:
        progress(f"job {job}")
        with isolated_step("pruning", job):
            if not dry_run:
                for _ in fold(job):
                    pass
            for name, table in DETAIL:
                counted[name] += _remove(table._default_manager.filter(job_id=job), dry_run=dry_run)
    keys = Job.objects.filter(created_at__lt=limits.before, state__in=JOB_OVER).exclude(idempotency_key=None)
    counted["idempotency keys"] = keys.count() if dry_run else keys.update(idempotency_key=None)
    for name, rows in _others(limits):
        counted[name] = _remove(rows, dry_run=dry_run)
    return counted


def old_jobs(limits: Limits) -> list[int]:
    """Jobs that ended long ago and still have details, the oldest first."""
    over = Job.objects.filter(state__in=JOB_OVER).order_by("-finished_at", "-pk")
    kept = list(over.filter(simulation=None).values_list("pk", flat=True)[: limits.keep_jobs])
    old = over.filter(finished_at__lt=limits.before).exclude(pk__in=kept)
    has_detail = reduce(or_, (Exists(table._default_manager.filter(job_id=OuterRef("pk"))) for _, table in DETAIL))
    return sorted(old.filter(has_detail).values_list("pk", flat=True))


def _others(limits: Limits) -> list[tuple[str, "models.QuerySet[Any]"]]:
    # Reusable ones let machines join again, and show later fleets whose machines they are.
    kept = Q(uses__gt=1) & Exists(Agent.objects.filter(token=OuterRef("pk")))
    over = Q(used_at__lt=limits.before, uses=1) | (Q(expires_at__lt=limits.now) & ~kept)
    return [
        ("machine samples", AgentSample.objects.filter(at__lt=limits.before)),
        ("API tokens", AuthToken.objects.filter(expiry__lt=limits.now)),
        ("alerts", Alert.objects.filter(is_remembered=False, resolved_at__lt=limits.before)),
        ("tests of targets", Delivery.objects.filter(alert=None, created_at__lt=limits.before)),
        ("silences", Silence.objects.filter(until__lt=limits.before)),
        ("enrolment tokens", EnrolmentToken.objects.filter(over)),
        ("failed logins", LoginAttempt.objects.filter(at__lt=limits.now - throttle.WINDOW)),
        ("sessions", Session.objects.filter(expire_date__lt=limits.now)),
    ]


def _remove(rows: "models.QuerySet[Any]", *, dry_run: bool) -> int:
    if dry_run:
        return rows.count()
    removed = 0
    while chosen := list(rows.order_by("pk").values_list("pk", flat=True)[:ROWS]):
        rows.model._default_manager.filter(pk__in=chosen).delete()
        removed += len(chosen)
    return removed
