"""The alerts page. Its changes use REST."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from controlplane.jobs.viewing import limits
from frontend.queries.alerts import alerts_context, form_context
from frontend.views.access import needs, operated, rights


@needs(Role.VIEWER)
def alerts_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/alerts.html", _alerts(request) | form_context())


@needs(Role.VIEWER)
def alerts_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/alerts_tables.html", _alerts(request) | {"oob": True})


def _alerts(request: HttpRequest) -> dict[str, Any]:
    context = alerts_context(timezone.now())
    jobs = [line.alert.job_id for line in context["firing"]] + [row.job_id for row in context["silences"]]
    jobs += [row.alert.job_id for row in context["deliveries"] if row.alert]
    found = {"operated": operated(Job, request, jobs), "sees_all": limits() is None}
    return rights(request) | context | found
