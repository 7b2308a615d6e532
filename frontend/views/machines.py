"""Pages of machines, and the command with which a new machine joins."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.api.enrolment import invite
from controlplane.api.machines import label_machine, plan_window
from controlplane.api.problems import Problem
from controlplane.api.serializers.machines import LabelsRequest, WindowRequest
from controlplane.fleet.credentials import ROTATION_LIMIT, rejoining, renewed_from, rotation
from controlplane.fleet.models import Agent
from controlplane.fleet.scheduling import shown_moves
from controlplane.fleet.selectors import tokens_valid
from controlplane.fleet.services import TOKEN_LIFETIME
from controlplane.fleet.windows import planned
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role, may
from controlplane.jobs.viewing import visible
from controlplane.runtime.draining import preview_of
from frontend.figures import MACHINES
from frontend.queries import fleet, machine
from frontend.queries.machine_tests import tests
from frontend.queries.picking import picked
from frontend.views.access import needs, operated, rights

MOST_TEXT = 20_000
"""Maximum characters of labels in the form."""


@needs(Role.VIEWER)
def machines_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/machines.html", _machines(request))


@needs(Role.VIEWER)
def machines_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/machines_live.html", _machines(request) | {"oob": True})


@needs(Role.VIEWER)
def machine_page(request: HttpRequest, agent_id: int) -> HttpResponse:
    """One machine: its processes, speed, findings and last log lines."""
    return render(request, "pages/machine.html", _machine(request, agent_id) | {"figures": MACHINES})


@needs(Role.VIEWER)
def machine_live(request: HttpRequest, agent_id: int) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/machine_detail.html", _machine(request, agent_id) | {"oob": True})


@never_cache
@require_POST
@needs(Role.OPERATOR)
def machine_window(request: HttpRequest, agent_id: int) -> HttpResponse:
    """Plan a maintenance window with the form's values."""
    agent = get_object_or_404(Agent, pk=agent_id)
    form = WindowRequest(data={**request.POST.dict(), "lead_s": _minutes(request.POST.get("lead", "0"))})
    if not form.is_valid():
        return _refused(request, agent, "; ".join(f"{name}: {errors[0]}" for name, errors in form.errors.items()))
    try:
        plan_window(agent=agent, actor=request.user.get_username(), **form.validated_data)
    except Problem as problem:
        return _refused(request, agent, str(problem.detail))
    return redirect("machine", agent_id)


@never_cache
@require_POST
@needs(Role.ADMIN)
def machine_labels(request: HttpRequest, agent_id: int) -> HttpResponse:
    """Set the added labels to the form's lines."""
    agent = get_object_or_404(Agent, pk=agent_id)
    lines = [line.strip() for line in request.POST.get("labels", "")[:MOST_TEXT].splitlines() if line.strip()]
    wrong = next((line for line in lines if "=" not in line), None)
    if wrong is not None:
        return _refused(request, agent, f"labels: found {wrong!r}, expected key=value, one per line")
    form = LabelsRequest(data={"labels": dict(line.split("=", 1) for line in lines)})
    if not form.is_valid():
        return _refused(request, agent, f"labels: {next(iter(form.errors.values()))}")
    try:
        label_machine(agent=agent, labels=form.validated_data["labels"], actor=request.user.get_username())
    except Problem as problem:
        return _refused(request, agent, str(problem.detail))
    return redirect("machine", agent_id)


def _minutes(text: str) -> str:
    """Minutes as seconds; text that is not a number is returned unchanged, for the validation error."""
    return str(int(text) * 60) if text.isdecimal() and len(text) < 6 else text


def _refused(request: HttpRequest, agent: Agent, sentence: str) -> HttpResponse:
    """The page again, with an error."""
    context = _machine(request, agent.pk) | {"figures": MACHINES, "refusal": sentence}
    return render(request, "pages/machine.html", context, status=400)


@never_cache
@needs(Role.OPERATOR)
def drain_preview(request: HttpRequest, agent_id: int) -> HttpResponse:
    """The preview of a drain, for its dialog."""
    agent = get_object_or_404(Agent, pk=agent_id)
    found = preview_of(agent)
    names = dict(Agent.objects.values_list("pk", "name"))
    there = visible(Job.objects.filter(pk__in={move.job for move in found.moves}))
    jobs = dict(there.values_list("pk", "name"))
    moves = [(move, jobs.get(move.job, ""), names.get(move.machine or 0, "")) for move in found.moves]
    return render(request, "parts/drain_preview.html", {"machine": agent, "preview": found, "moves": moves})


@never_cache
@require_POST
@needs(Role.ADMIN)
def enrolment(request: HttpRequest) -> HttpResponse:
    """Create an enrolment token, shown once in the command that uses it."""
    invitation = invite(user=cast(User, request.user), labels={})
    context = {"invitation": invitation, "minutes": int(TOKEN_LIFETIME.total_seconds() // 60)}
    return render(request, "parts/enrolment.html", context | {"tokens": tokens_valid(), "oob": True})


def _machines(request: HttpRequest) -> dict[str, Any]:
    """The machines that match the query."""
    offered = rights(request)
    tokens = tokens_valid() if offered["may_admin"] else ()
    found = picked(fleet.machines_now(), request.GET)
    return offered | {
        "picked": found,
        "tokens": tokens,
        "operated": operated(Agent, request, (card.id for card in found.page)),
    }


def _machine(request: HttpRequest, agent_id: int) -> dict[str, Any]:
    agent = get_object_or_404(Agent, pk=agent_id)
    instances = machine.instances(agent)
    return rights(request) | {
        "operated": operated(Job, request, (each.job for each in instances)),
        "machine": fleet.machine(agent, timezone.now()),
        "may_remove": may(request.user, Role.ADMIN)
        and agent.state == Agent.State.OFFLINE
        and not agent.reservations.exists(),
        "rotation": rotation(agent),
        "expires_at": agent.credential_expires_at,
        "renewed_from": renewed_from(agent),
        "rejoin": rejoining(agent.name),
        "can_rotate": agent.can_rotate,
        "now": timezone.now(),
        "rotation_minutes": int(ROTATION_LIMIT.total_seconds() // 60),
        "tests": tests(agent),
        "moves": shown_moves(agent, timezone.now()),
        "windows": planned(agent),
        "added_labels": "\n".join(f"{key}={value}" for key, value in agent.added_labels.items()),
        "token_labels": agent.labels,
        "instances": instances,
        "flags": machine.flags(agent),
        "lines": machine.lines(agent),
    }
