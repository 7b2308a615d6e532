"""The audit page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs.roles import Role
from frontend.queries.audit import actions, audit_page
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def audit(request: HttpRequest) -> HttpResponse:
    """Newest first; filtered by ``actor`` and ``action``."""
    actor, action = filters_of(request)
    page = audit_page(actor=actor, action=action, number=request.GET.get("page", 1))
    context = {"page": page, "actor": actor, "action": action, "actions": actions()}
    return render(request, "pages/audit.html", rights(request) | context)


def filters_of(request: HttpRequest) -> tuple[str, str]:
    """The filters by actor and action; empty: all."""
    return request.GET.get("actor", "").strip()[:100], request.GET.get("action", "")[:40]
