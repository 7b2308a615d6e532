"""The overview: the cluster at a glance."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.roles import Role
from frontend.queries import fleet, overview
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/overview.html", _context(request))


@needs(Role.VIEWER)
def overview_live(request: HttpRequest) -> HttpResponse:
    """Its live parts, to be put in place."""
    return render(request, "pages/overview_live.html", _context(request) | {"oob": True})


def _context(request: HttpRequest) -> dict[str, Any]:
    machines, lines = fleet.machines(timezone.now()), overview.overview_jobs(timezone.now())
    return rights(request) | {
        "history_notice": overview.history_notice(),
        "tiles": overview.tiles(machines, lines),
        "machines": machines,
        "jobs": lines,
        "events": overview.events(),
        "newest_job": overview.newest_job(),
        "live_jobs": [line for line in lines if not line.over],
    }
