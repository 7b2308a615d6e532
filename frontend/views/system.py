"""The page of the control plane's own health."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs.roles import Role
from frontend.queries.system import system
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def system_page(request: HttpRequest) -> HttpResponse:
    """Every part of the control plane: how it stands, and what to do about it."""
    return render(request, "pages/system.html", rights(request) | {"system": system()})


@needs(Role.VIEWER)
def system_live(request: HttpRequest) -> HttpResponse:
    """Its live part, to be put in place."""
    return render(request, "parts/system_parts.html", {"system": system(), "oob": True})
