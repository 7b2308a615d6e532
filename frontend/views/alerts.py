"""The page of alerts. What it changes goes over REST."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.roles import Role
from frontend.queries.alerts import alerts_context, form_context
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def alerts_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/alerts.html", _alerts(request) | form_context())


@needs(Role.VIEWER)
def alerts_live(request: HttpRequest) -> HttpResponse:
    """Its live part, which replaces the current one."""
    return render(request, "parts/alerts_tables.html", _alerts(request) | {"oob": True})


def _alerts(request: HttpRequest) -> dict[str, Any]:
    return rights(request) | alerts_context(timezone.now())
