"""The overview of the cluster."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.roles import Role
from frontend.queries import fleet, overview
from frontend.queries.picking import picked
from frontend.views.access import needs, rights
from frontend.views.freshness import data_age


@needs(Role.VIEWER)
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/overview.html", _context(request))


@needs(Role.VIEWER)
def overview_live(request: HttpRequest) -> HttpResponse:
    """Its live parts, which replace the current ones."""
    return render(request, "pages/overview_live.html", _context(request) | {"oob": True})


def _context(request: HttpRequest) -> dict[str, Any]:
    machines, lines = fleet.machines_now(), overview.overview_jobs(timezone.now())
    return (
        rights(request)
        | data_age()
        | {
            "tiles": overview.tiles(machines, lines, timezone.now()),
            "picked": picked(machines, request.GET),
            "jobs": lines,
            "events": overview.events(),
            "last_decision": overview.last_decision(),
            "newest_job": overview.newest_job(),
        }
    )
