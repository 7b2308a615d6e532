"""Evaluates alert rules periodically, and delivers their notifications."""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.alerts.conditions import AT_WORK, Finding
from controlplane.alerts.delivery import deliver_due, has_due
from controlplane.alerts.models import Evaluated
from controlplane.alerts.shares import Mark, advanced
from controlplane.alerts.step import Stepped, alerts_evaluate, evaluated_before, is_anything_watched
from controlplane.jobs.models import Decision, Job
from controlplane.runtime import ticks
from controlplane.runtime.alert_view import read_view, waiting_sums, with_shares
from controlplane.runtime.redis import Client

DELIVER: Final = "controlplane.runtime.tasks.deliver_alerts"
EVERY_S: Final = 5.0
SHOWN: Final = 10
"""Number of iterations before the event that the timeline shows."""

INGEST_S: Final = timedelta(seconds=1)
"""Maximum delay of a row's time after its event."""

Marks = dict[int, Mark]


def evaluate(client: Client, now: datetime | None = None) -> Stepped:
    """Evaluate all rules once, and notify open pages of changes."""
    now = now or timezone.now()
    before = evaluated_before()
    if not is_anything_watched():
        return _noted(before, now, {}, Stepped(changed=0, queued=0))
    view = read_view(client, now, before.at if before else None)
    running = [number for number, job in view.jobs.items() if job.state in AT_WORK]
    marks = advanced(_marks(before), waiting_sums(running), now.timestamp())
    with transaction.atomic():
        if before and not Evaluated.objects.filter(pk=before.pk, at=before.at).update(at=now):
            return Stepped(changed=0, queued=0)  # the lease expired, and another process has evaluated since
        done = alerts_evaluate(with_shares(view, marks), place_of=place_of, base_url=settings.PACELINE_URL)
        _noted(before, now, marks, done)
    if done.changed or done.queued:
        ticks.publish(client, alerts=True)
    return done


def _noted(before: Evaluated | None, now: datetime, marks: Marks, done: Stepped) -> Stepped:
    row = before or Evaluated()
    row.at, row.marks = now, {str(job): msgspec.to_builtins(mark) for job, mark in marks.items()}
    row.save()
    return done


def deliver(client: Client) -> int:
    """Deliver messages that are due, and notify open pages."""
    tried = has_due(timezone.now())
    delivered = deliver_due(timezone.now)
    if tried:
        ticks.publish(client, alerts=True)
    return delivered


def is_delivery_due() -> bool:
    """Whether a task should deliver now."""
    return has_due(timezone.now())


def place_of(finding: Finding) -> str:
    """The page that shows the event: the iteration on the job's timeline, or the decision at that time."""
    if finding.job is None:
        return finding.place
    page = f"/jobs/{finding.job}/"
    if finding.place == "timeline":
        iteration = Job.objects.filter(pk=finding.job).values_list("iteration", flat=True).first() or 0
        return f"{page}?tab=timeline&first-timeline={max(0, iteration - SHOWN)}"
    decision = finding.decision or _decision(finding)
    if not decision:
        return page
    sequence = int(decision.partition("-")[2])
    return f"{page}?tab=decisions&decisions=all&before={sequence + 1}#decision-{decision}"


def _decision(finding: Finding) -> str:
    """The last decision up to that time."""
    rows = Decision.objects.filter(job=finding.job)
    if finding.at is not None:
        rows = rows.filter(at__lte=finding.at + INGEST_S)
    row = rows.order_by("-incarnation", "-sequence").first()
    return f"{row.incarnation}-{row.sequence}" if row else ""


def _marks(row: Evaluated | None) -> Marks:
    if row is None:
        return {}
    return {int(job): msgspec.convert(mark, Mark) for job, mark in row.marks.items()}
