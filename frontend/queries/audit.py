"""Reads the audit log: requests of users and programs."""

from typing import Any

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Concat

from controlplane.fleet.models import Agent
from controlplane.jobs.models import AuditEntry
from controlplane.jobs.viewing import limits, viewer, visible
from controlplane.people.models import Team

PER_PAGE = 50
ABOUT_JOBS = ("job-submit", "job-stop", "owner")


def audit_page(*, actor: str = "", action: str = "", number: str | int = 1) -> Page[AuditEntry]:
    """One page of requests, newest first."""
    return Paginator(audit_rows(actor=actor, action=action).order_by("-id"), PER_PAGE).get_page(number)


def audit_rows(*, actor: str = "", action: str = "") -> QuerySet[AuditEntry]:
    """All requests with this actor and action that the current user may see."""
    rows = AuditEntry.objects.all()
    if (limit := limits("job__team")) is not None:
        rows = rows.filter(Q(job__isnull=True) & _of_nobody_else() | Q(job__isnull=False) & limit)
    if actor:
        rows = rows.filter(actor__icontains=actor)
    return rows.filter(action=action) if action else rows


def _of_nobody_else() -> Q:
    """Selects entries that are not about jobs, nor about a machine or team that the current user may not see.

    Entries name their machine in the text, so those about removed machines are visible to admins only. Entries of
    earlier releases also name the job in the text.
    """
    user = viewer()
    own = Team.objects.filter(memberships__user=user if isinstance(user, User) else None)
    machines = _named("agent ", visible(Agent.objects.all()))
    foreign = Q(subject__startswith="agent ") & ~Q(subject__in=machines)
    foreign |= Q(subject__startswith="team ") & ~Q(subject__in=_named("team ", own))
    foreign |= Q(subject__startswith="quota of team ") & ~Q(subject__in=_named("quota of team ", own))
    return ~Q(action__in=ABOUT_JOBS) & ~foreign


def _named(kind: str, rows: Any) -> Any:
    """The subjects of entries about these rows."""
    return rows.annotate(subject_here=Concat(Value(kind), F("name"))).values("subject_here")


def actions() -> list[str]:
    """All actions in the log."""
    return sorted(AuditEntry.objects.order_by().values_list("action", flat=True).distinct())
