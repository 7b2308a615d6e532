"""Quotas of users and teams: use, limits, and refusals that name both."""

from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet, Sum

from controlplane.fleet.selectors import SlotsNow, slots_now
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit
from controlplane.jobs.shares import slots_used, unfinished
from controlplane.people.models import Quota, Team
from controlplane.people.sizes import exact_size
from controlplane.protocol.spec import JobSpec
from paceline.cli.places import MANAGE

RESOURCES: Final = {
    "slots": "slots in use",
    "jobs": "unfinished jobs",
    "workers": "workers of unfinished jobs",
    "simulations": "unfinished simulations",
    "stored_bytes": "stored models",
}
SIZES: Final = frozenset({"stored_bytes"})
"""Resources of which bytes are counted: people read and write them with a unit."""

BUILT_IN: Final = {"jobs": 1_000, "simulations": 20, "stored_bytes": 100 * 10**9}
"""Limits of each user until an admin sets others: far above a person's needs, to stop runaway scripts."""


def amount(resource: str, number: int) -> str:
    """Exactly so much of the resource: ``1,000``, or ``10 GB``."""
    return exact_size(number) if resource in SIZES else f"{number:,}"


class QuotaExceeded(Exception):
    """A request would exceed a quota; the text names the subject, the found and allowed values, and the cure."""

    def __init__(self, subject: str, resource: str, found: int, limit: int) -> None:
        self.subject, self.resource, self.found, self.limit = subject, resource, found, limit
        cure = "delete models, or" if resource in SIZES else "wait for the end of some, stop one, or"
        noun = f"of {RESOURCES[resource]}" if resource in SIZES else RESOURCES[resource]
        super().__init__(
            f"the quota of {subject} is {amount(resource, limit)} {noun}, and with this there would be"
            f" {amount(resource, found)}: {cure} have an admin raise it"
            f" ({MANAGE} quotas set {subject} --{resource.replace('_', '-')} N)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """One subject's use of each resource and its limits."""

    subject: str
    used: dict[str, int]
    limits: dict[str, int | None]


def quota_of(*, user: User | None = None, team: Team | None = None) -> Quota | None:
    """The effective quota: a user's own row, otherwise the default of all users; a team's row, if it has one."""
    if team is not None:
        return Quota.objects.filter(team=team).first()
    return (Quota.objects.filter(user=user).first() if user else None) or default_quota()


def default_quota() -> Quota:
    """The limits of users without a row of their own: the built-in ones until an admin sets others."""
    return Quota.objects.filter(user=None, team=None).first() or Quota(**BUILT_IN)


@transaction.atomic
def quota_set(*, user: User | None = None, team: Team | None = None, actor: str, **limits: int | None) -> Quota:
    """Set these limits; others keep their (or the built-in) value. Without user and team: the default of all users."""
    row, _ = Quota.objects.get_or_create(user=user, team=team, defaults={} if team else BUILT_IN)
    for resource, limit in limits.items():
        setattr(row, resource, limit)
    row.save()
    audit(actor=actor, action="quota", subject=f"quota of {subject_of(row)}", detail=dict(limits))
    return row


def subject_of(row: Quota) -> str:
    """``user ada``, ``team vision``, or the default."""
    if row.user is not None:
        return f"user {row.user.get_username()}"
    return f"team {row.team}" if row.team is not None else "default"


def quota_usage(*, user: User | None = None, team: Team | None = None, slots: SlotsNow | None = None) -> QuotaUsage:
    """The usage and limits of the user or the team."""
    row, subject = quota_of(user=user, team=team), f"team {team}" if team else f"user {user}"
    limits = {resource: getattr(row, resource) if row else None for resource in RESOURCES}
    return QuotaUsage(subject=subject, used=used_by(user=user, team=team, slots=slots), limits=limits)


def used_by(*, user: User | None = None, team: Team | None = None, slots: SlotsNow | None = None) -> dict[str, int]:
    """The present usage of the user or the team."""
    key = f"team {team.pk}" if team else f"user {user.pk if user else 0}"
    return {"slots": slots_used(slots or slots_now())[key]} | {
        resource: _used(resource, user=user, team=team) for resource in RESOURCES if resource != "slots"
    }


def _used(resource: str, *, user: User | None = None, team: Team | None = None) -> int:
    """The present usage of a resource other than slots."""
    jobs = unfinished(team=team.pk if team else None, user=None if team else user.pk if user else 0)
    mine: dict[str, Any] = {"team": team} if team else {"submitted_by": user}
    match resource:
        case "jobs":
            return jobs.count()
        case "workers":
            return sum(each for each in jobs.values_list("spec__workers", flat=True) if isinstance(each, int))
        case "simulations":
            return unfinished_simulations(team or user)
        case _:
            return _stored_bytes(Job.objects.filter(**mine))


def unfinished_simulations(owner: User | Team | None) -> int:
    """Simulations of the user or the team that are queued or run."""
    if owner is None:
        return 0
    rows: Any = owner.simulations if isinstance(owner, Team) else owner.simulation_set
    return int(rows.filter(state__in=("queued", "running")).count())


def check_job(*, spec: JobSpec, user: User, team: Team | None) -> None:
    """Check that this job is within the quotas of its user and team. Call it in the transaction that stores the job.

    Raises:
        QuotaExceeded: naming the first quota that it would exceed.
    """
    least = (spec.elastic.minimum_workers or spec.workers) + (0 if spec.attached else spec.servers)
    more = {"jobs": 1, "workers": spec.workers, "stored_bytes": 0}
    for owner in ({"user": user}, {"team": team}) if team else ({"user": user},):
        row = _locked(quota_of(**owner), user)
        if row is None:
            continue
        subject = f"team {team}" if "team" in owner else f"user {user.get_username()}"
        if row.slots is not None and spec.takes_slots and least > row.slots:
            raise QuotaExceeded(subject, "slots", least, row.slots)
        for resource, number in more.items():
            limit = getattr(row, resource)
            if limit is not None and (found := _used(resource, **owner) + number) > limit:
                raise QuotaExceeded(subject, resource, found, limit)


def check_simulation(*, user: User, team: Team | None = None) -> None:
    """Check that the user may start another simulation, for the team if one is to own it.

    Raises:
        QuotaExceeded: naming the first quota that it would exceed.
    """
    owners: list[User | Team] = [user, team] if team else [user]
    for owner in owners:
        row = _locked(quota_of(team=owner) if isinstance(owner, Team) else quota_of(user=owner), user)
        if row is None or row.simulations is None:
            continue
        if (found := unfinished_simulations(owner) + 1) > row.simulations:
            subject = f"team {owner}" if isinstance(owner, Team) else f"user {owner.get_username()}"
            raise QuotaExceeded(subject, "simulations", found, row.simulations)


def check_model(job: Job, size: int) -> None:
    """Check that the job's owners may store a model of ``size`` bytes for it, instead of its present one.

    Raises:
        QuotaExceeded: naming the first quota that it would exceed.
    """
    user, team = job.submitted_by, job.team
    owners: list[dict[str, Any]] = [{"user": user}] if user else []
    for owner in [*owners, {"team": team}] if team else owners:
        row = quota_of(**owner)
        if row is None or row.stored_bytes is None:
            continue
        mine = {"team": team} if "team" in owner else {"submitted_by": user}
        if (found := _stored_bytes(Job.objects.filter(**mine).exclude(pk=job.pk)) + size) > row.stored_bytes:
            subject = f"team {team}" if "team" in owner else f"user {user}"
            raise QuotaExceeded(subject, "stored_bytes", found, row.stored_bytes)


def _stored_bytes(jobs: QuerySet[Job]) -> int:
    return int(jobs.aggregate(total=Sum("model_bytes"))["total"] or 0)


def _locked(row: Quota | None, user: User) -> Quota | None:
    """The quota, locked, so that of two concurrent submissions at the limit one is refused."""
    if row is None or row.pk is None:  # built-in limits have no row: lock the user's instead
        User.objects.select_for_update().get(pk=user.pk)
        return row
    return Quota.objects.select_for_update().get(pk=row.pk)
