"""The queue page: waiting jobs in order, and the quotas and shares that determine it."""

from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.api.views.teams import quota_usages, visible_teams
from controlplane.jobs.models import Job
from controlplane.jobs.roles import ORDER, Role, role_on
from controlplane.jobs.shares import team_shares
from controlplane.jobs.waiting import queue_in_order
from controlplane.people.quotas import RESOURCES
from frontend.queries.teams import meters
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def queue_page(request: HttpRequest) -> HttpResponse:
    """The whole page."""
    return render(request, "pages/queue.html", _queue(request))


@needs(Role.VIEWER)
def queue_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/queue_tables.html", _queue(request) | {"oob": True})


def _queue(request: HttpRequest) -> dict[str, Any]:
    user = cast(User, request.user)
    jobs = queue_in_order(timezone.now())
    shares = team_shares()
    return rights(request) | {
        "lines": [_line(user, jobs, at) for at in range(len(jobs))],
        "teams": [(team, shares[team.pk]) for team in visible_teams(user) if team.pk in shares],
        "quotas": [
            (each.subject, meters(each.used, each.limits))
            for each in quota_usages(user)
            if any(limit is not None for limit in each.limits.values())
        ],
        "resources": RESOURCES,
    }


def _line(user: User, jobs: list[Job], at: int) -> dict[str, Any]:
    """A job, and the targets of its move buttons."""
    held = role_on(user, jobs[at].team_id)
    return {
        "job": jobs[at],
        "place": at + 1,
        "first": jobs[0].pk if at else None,
        "up": jobs[at - 1].pk if at else None,
        "is_last": at == len(jobs) - 1,
        "may_move": held is not None and ORDER.index(held) >= ORDER.index(Role.OPERATOR),
    }
