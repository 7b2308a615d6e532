"""Reads what people and programs asked of the control plane."""

from django.core.paginator import Page, Paginator

from controlplane.jobs.models import AuditEntry

PER_PAGE = 50


def audit_page(*, actor: str = "", action: str = "", number: str | int = 1) -> Page[AuditEntry]:
    """One page of what was asked, newest first."""
    rows = AuditEntry.objects.order_by("-id")
    if actor:
        rows = rows.filter(actor__icontains=actor)
    if action:
        rows = rows.filter(action=action)
    return Paginator(rows, PER_PAGE).get_page(number)


def actions() -> list[str]:
    """Every kind of thing that was ever asked."""
    return sorted(AuditEntry.objects.order_by().values_list("action", flat=True).distinct())
