"""The queue's input about teams and quotas: each team's share, and the remaining slots of each quota.

The rows belong to ``people`` and are reached over relations, since this package must not import it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.core.states import JOB_OVER
from controlplane.fleet.selectors import SlotsNow
from controlplane.jobs.models import Job
from controlplane.jobs.queue import subjects_of
from controlplane.scheduling.fair_share import NO_TEAM, Share, decayed, fair_order
from controlplane.scheduling.queueing import SlotRequest, Verdict, by_place, plan


def team_shares(now: datetime | None = None) -> dict[int, Share]:
    """The weight and decayed usage of each team; empty in an installation without teams."""
    now = now or timezone.now()
    teams = dict(apps.get_model("people", "Team").objects.values_list("pk", "weight"))
    if not teams:
        return {}
    used = {NO_TEAM: 0.0}
    for row in apps.get_model("people", "TeamUsage").objects.all():
        used[row.team_id or NO_TEAM] = decayed(row.slot_seconds, (now - row.at).total_seconds())
    weights = {NO_TEAM: 1.0, **teams}
    return {team: Share(weight=weight, used=used.get(team, 0.0)) for team, weight in weights.items()}


@transaction.atomic
def usage_add(slots: SlotsNow, now: datetime | None = None) -> None:
    """Add the slots that jobs held since the last call to their teams' usage."""
    now = now or timezone.now()
    teams = apps.get_model("people", "Team").objects.values_list("pk", flat=True)
    if not teams:
        return
    owners = dict(Job.objects.filter(pk__in={hold.job for hold in slots.holds}).values_list("pk", "team_id"))
    held: Counter[int | None] = Counter()
    for hold in slots.holds:
        held[owners.get(hold.job)] += hold.workers + hold.servers
    rows: Any = apps.get_model("people", "TeamUsage").objects
    every: list[int | None] = [None, *teams]
    for team in every:
        row, _ = rows.get_or_create(team_id=team, defaults={"at": now})
        elapsed = min(MOST_ELAPSED_S, max(0.0, (now - row.at).total_seconds()))
        used = decayed(row.slot_seconds, (now - row.at).total_seconds()) + held[team] * elapsed
        rows.filter(pk=row.pk).update(slot_seconds=used, at=now)


MOST_ELAPSED_S = 60.0
"""Longest time that one call adds, since after an outage the holders of slots are unknown."""


def quota_rows() -> dict[str, int]:
    """The quota of slots of each subject that has one."""
    rows = apps.get_model("people", "Quota").objects.filter(slots__isnull=False)
    found: dict[str, int] = {}
    for user, group, slots in rows.values_list("user_id", "team_id", "slots"):
        found["" if not (user or group) else f"user {user}" if user else f"team {group}"] = int(slots or 0)
    return found


def plan_queue(
    requests: Sequence[SlotRequest], slots: SlotsNow, now: float, shares: Mapping[int, Share] | None = None
) -> list[Verdict]:
    """The verdict on each waiting job, by teams' shares and within quotas of slots."""
    known = team_shares() if shares is None else shares
    order = partial(fair_order, shares=known) if known else by_place
    return plan(requests, slots.offers, now, order=order, room=room_for(requests, slots))


def room_for(requests: Iterable[SlotRequest], slots: SlotsNow) -> Mapping[str, int]:
    """The remaining slots of each quota that applies to one of these jobs."""
    quotas = quota_rows()
    if not quotas:
        return {}
    own = set(apps.get_model("people", "Quota").objects.filter(user__isnull=False).values_list("user_id", flat=True))
    subjects = {subject for request in requests for subject in request.subjects}
    limits = {subject: limit for subject in subjects if (limit := _limit(subject, quotas, own)) is not None}
    used = slots_used(slots)
    return {subject: max(0, limit - used[subject]) for subject, limit in limits.items()}


def slots_used(slots: SlotsNow) -> Counter[str]:
    """The number of slots that each subject's jobs hold."""
    used: Counter[str] = Counter()
    holders = Job.objects.in_bulk({hold.job for hold in slots.holds})
    for hold in slots.holds:
        if hold.job in holders:
            for subject in subjects_of(holders[hold.job]):
                used[subject] += hold.workers + hold.servers
    return used


def _limit(subject: str, quotas: Mapping[str, int], own: set[int]) -> int | None:
    """The user's own quota if there is a row, otherwise the default."""
    kind, number = subject.split()
    if kind == "user" and int(number) not in own:
        return quotas.get("")
    return quotas.get(subject)


def unfinished(user: int | None = None, team: int | None = None) -> "QuerySet[Job]":
    """Jobs of the user or of the team that are not over."""
    of = Q(submitted_by=user) if user is not None else Q(team=team)
    return Job.objects.filter(of, simulation=None).exclude(state__in=JOB_OVER)


def subject_name(subject: str) -> str:
    """``team vision`` for ``team 3``."""
    kind, number = subject.split()
    if kind == "team":
        name = apps.get_model("people", "Team").objects.filter(pk=number).values_list("name", flat=True).first()
    else:
        name = get_user_model().objects.filter(pk=number).values_list("username", flat=True).first()
    return f"{kind} {name or number}"
