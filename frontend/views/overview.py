"""The overview of the cluster."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from frontend.queries import costs, fleet, overview
from frontend.queries.picking import picked
from frontend.queries.saved_views import pins
from frontend.views.access import needs, operated, rights
from frontend.views.freshness import data_age


@needs(Role.VIEWER)
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/overview.html", _context(request) | {"pins": pins(cast(User, request.user))})


@needs(Role.VIEWER)
def overview_live(request: HttpRequest) -> HttpResponse:
    """The live parts of the page."""
    return render(request, "pages/overview_live.html", _context(request) | {"oob": True})


def _context(request: HttpRequest) -> dict[str, Any]:
    machines, lines = fleet.machines_now(), overview.overview_jobs(timezone.now())
    found = costs.greatest(machines, timezone.now())
    return (
        rights(request)
        | data_age()
        | {
            "tiles": overview.tiles(machines, lines, timezone.now()),
            "costs": found,
            "recent": costs.RECENT,
            "operated": operated(Job, request, (line.cost.job for line in found)),
            "picked": picked(machines, request.GET),
            "jobs": lines,
            "events": overview.events(),
            "last_decision": overview.last_decision(),
            "newest_job": overview.newest_job(),
        }
    )
