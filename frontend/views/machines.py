"""The page of machines, and the command by which another one joins."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.api.enrolment import invite
from controlplane.fleet.credentials import ROTATION_LIMIT, rotation
from controlplane.fleet.models import Agent
from controlplane.fleet.selectors import tokens_valid
from controlplane.fleet.services import TOKEN_LIFETIME
from controlplane.jobs.roles import Role
from frontend.figures import MACHINES
from frontend.queries import fleet, machine
from frontend.queries.picking import picked
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def machines_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/machines.html", _machines(request))


@needs(Role.VIEWER)
def machines_live(request: HttpRequest) -> HttpResponse:
    """Its live part, which replaces the current one."""
    return render(request, "parts/machines_live.html", _machines(request) | {"oob": True})


@needs(Role.VIEWER)
def machine_page(request: HttpRequest, agent_id: int) -> HttpResponse:
    """One machine: its work in each job, its speed, its findings and its last lines."""
    return render(request, "pages/machine.html", _machine(request, agent_id) | {"figures": MACHINES})


@needs(Role.VIEWER)
def machine_live(request: HttpRequest, agent_id: int) -> HttpResponse:
    """Its live part, which replaces the current one."""
    return render(request, "parts/machine_detail.html", _machine(request, agent_id) | {"oob": True})


@never_cache
@require_POST
@needs(Role.ADMIN)
def enrolment(request: HttpRequest) -> HttpResponse:
    """A new enrolment token, shown once, in the command that uses it."""
    invitation = invite(user=cast(User, request.user), labels={})
    context = {"invitation": invitation, "minutes": int(TOKEN_LIFETIME.total_seconds() // 60)}
    return render(request, "parts/enrolment.html", context | {"tokens": tokens_valid(), "oob": True})


def _machines(request: HttpRequest) -> dict[str, Any]:
    """The machines that match the query."""
    offered = rights(request)
    tokens = tokens_valid() if offered["may_admin"] else ()
    return offered | {"picked": picked(fleet.machines_now(), request.GET), "tokens": tokens}


def _machine(request: HttpRequest, agent_id: int) -> dict[str, Any]:
    agent = get_object_or_404(Agent, pk=agent_id)
    return rights(request) | {
        "machine": fleet.machine(agent, timezone.now()),
        "rotation": rotation(agent),
        "rotation_minutes": int(ROTATION_LIMIT.total_seconds() // 60),
        "lives": machine.lives(agent),
        "flags": machine.flags(agent),
        "lines": machine.lines(agent),
    }
