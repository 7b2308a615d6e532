"""Reads the requests of users and programs to the control plane."""

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

from controlplane.jobs.models import AuditEntry

PER_PAGE = 50


def audit_page(*, actor: str = "", action: str = "", number: str | int = 1) -> Page[AuditEntry]:
    """One page of requests, newest first."""
    return Paginator(audit_rows(actor=actor, action=action).order_by("-id"), PER_PAGE).get_page(number)


def audit_rows(*, actor: str = "", action: str = "") -> QuerySet[AuditEntry]:
    """All requests of this actor and kind."""
    rows = AuditEntry.objects.all()
    if actor:
        rows = rows.filter(actor__icontains=actor)
    return rows.filter(action=action) if action else rows


def actions() -> list[str]:
    """Every kind of request so far."""
    return sorted(AuditEntry.objects.order_by().values_list("action", flat=True).distinct())
