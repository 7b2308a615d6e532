"""Pages of teams and quotas. Their changes use REST."""

import json
from typing import Any, cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from controlplane.jobs.roles import Role, may
from controlplane.jobs.shares import team_shares
from controlplane.people.models import Membership, Team
from controlplane.people.quotas import RESOURCES
from controlplane.people.teams import LEAST_WEIGHT, MOST_WEIGHT, owned_by
from frontend.queries import teams as queries
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def teams_page(request: HttpRequest) -> HttpResponse:
    """The list of teams, and the quotas of users."""
    return render(request, "pages/teams.html", _teams(request))


@needs(Role.VIEWER)
def teams_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/teams_tables.html", _teams(request) | {"oob": True})


@needs(Role.VIEWER)
def team_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One team: its members, fair share, quota, and what it owns."""
    return render(request, "pages/team.html", _team(request, pk))


@needs(Role.VIEWER)
def team_live(request: HttpRequest, pk: int) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/team_detail.html", _team(request, pk) | {"oob": True})


def _teams(request: HttpRequest) -> dict[str, Any]:
    user = cast(User, request.user)
    page, lines = queries.team_lines(user, request.GET.get("page", 1))
    users, limited = queries.user_quotas(user, request.GET.get("users", 1))
    return (
        rights(request)
        | _forms()
        | {
            "page": page,
            "lines": lines,
            "users": users,
            "limited": limited,
            "default_limits": queries.limit_fields(limits := queries.default_limits()),
            "default_shown": queries.limits_shown(limits),
        }
    )


def _team(request: HttpRequest, pk: int) -> dict[str, Any]:
    team = get_object_or_404(Team, pk=pk)
    user = cast(User, request.user)
    everything = may(user, Role.ADMIN)
    context = (
        rights(request)
        | _forms()
        | {
            "may_manage_all": everything,
            "team": team,
            "members": queries.members_of(team),
            "share": queries.fair_share(team.pk, team_shares(), team.weight),
            "quota": queries.team_quota(team),
            "machines": queries.machines_of(team),
            "jobs": queries.jobs_of(team),
            "simulations": queries.simulations_of(team),
            "owned": owned_by(team),
            "owner_body": json.dumps({"team": team.name}),
            "roles": [(role.value, ROLES[role]) for role in Membership.Role],
        }
    )
    if everything:
        people = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
        context |= {"unowned_machines": queries.unowned_machines(), "usernames": people[: queries.MOST_OFFERED]}
    return context


ROLES = {
    Membership.Role.MEMBER: "can view what the team owns",
    Membership.Role.OPERATOR: "can also submit and stop its jobs and drain its machines",
    Membership.Role.ADMIN: "can also manage its members and the labels of its machines",
}


def _forms() -> dict[str, Any]:
    """The fields of the forms for limits and weights."""
    fields = [(name, queries.TITLES[name], about) for name, about in RESOURCES.items()]
    return {"limit_fields": fields, "least_weight": LEAST_WEIGHT, "most_weight": MOST_WEIGHT}
