"""The system health page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs.roles import Role
from frontend.queries.system import system
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def system_page(request: HttpRequest) -> HttpResponse:
    """Every component of the control plane: its health, and the remedy."""
    return render(request, "pages/system.html", rights(request) | {"system": system()})


@needs(Role.VIEWER)
def system_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/system_parts.html", {"system": system(), "oob": True})
