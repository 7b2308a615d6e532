"""The overview: the cluster at a glance."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.roles import Role
from frontend.queries import fleet, overview
from frontend.queries.picking import PickError, picked
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def overview_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return _rendered(request, "pages/overview.html", {})


@needs(Role.VIEWER)
def overview_live(request: HttpRequest) -> HttpResponse:
    """Its live parts, to be put in place."""
    return _rendered(request, "pages/overview_live.html", {"oob": True})


def _rendered(request: HttpRequest, template: str, more: dict[str, Any]) -> HttpResponse:
    try:
        return render(request, template, _context(request) | more)
    except PickError as error:
        return HttpResponseBadRequest(str(error))


def _context(request: HttpRequest) -> dict[str, Any]:
    machines, lines = fleet.machines(timezone.now()), overview.overview_jobs(timezone.now())
    shown = picked(machines, request.GET)
    return rights(request) | {
        "history_notice": overview.history_notice(),
        "tiles": overview.tiles(machines, lines),
        "machines": shown.machines,
        "picked": shown,
        "jobs": lines,
        "events": overview.events(),
        "last_decision": overview.last_decision(),
        "newest_job": overview.newest_job(),
        "live_jobs": [line for line in lines if not line.over],
    }
