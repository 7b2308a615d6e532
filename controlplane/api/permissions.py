"""Checks roles: a view names the roles for reading and writing; the default for writing is admin.

The path names the object: a job, a machine, a simulation or a team. Its owner decides which role counts,
so that new paths below them need no code in their views. A token with scopes also needs the scope of the
path.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from django.http import Http404
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.roles import ORDER, Role, highest_role, role_of, role_on
from controlplane.people.scopes import allow, stored
from controlplane.people.scopes import needed as uses
from controlplane.telemetry.models import Simulation

ABOUT: Final = re.compile(r"(?:^|/)(jobs|agents|simulations|teams)/<int:pk>")
"""Paths in which ``pk`` is the ID of one of these."""

Owned = type[Job] | type[Agent] | type[Simulation]

NAMED: Final[dict[str, Owned]] = {"job_id": Job, "agent_id": Agent}
"""Path arguments of pages."""

OWNED: Final[dict[str, Owned]] = {"jobs": Job, "agents": Agent, "simulations": Simulation}


def owner_of(route: str, arguments: Mapping[str, Any]) -> int | None:
    """The team that owns the object in the path; None: no team owns it, or it does not exist."""
    for name, model in NAMED.items():
        if name in arguments:
            return _team_of(model, int(arguments[name]))
    match = ABOUT.search(route)
    if match is None:
        return None
    number = int(arguments["pk"])
    return number if match[1] == "teams" else _team_of(OWNED[match[1]], number)


def _team_of(model: Owned, number: int) -> int | None:
    rows: Any = model.objects.filter(pk=number)
    team: int | None = rows.values_list("team_id", flat=True).first()
    return team


class HasRole(BasePermission):
    """Closed by default: reading requires ``read_role`` (viewer), writing ``write_role`` (admin)."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the user's role is sufficient; the error names the required one.

        Raises:
            Http404: if a team owns the object, and the user is not a member.
        """
        reading = request.method in SAFE_METHODS
        needed = getattr(view, "read_role", Role.VIEWER) if reading else getattr(view, "write_role", Role.ADMIN)
        scopes = getattr(request.user, "scopes", None)
        if not allow(scopes, request.path, reading=reading):
            wanted = " or ".join(uses(request.path, reading=reading)) or "none: a token without scopes"
            self.message = f"this requires a token with the scope {wanted}; yours has {stored(scopes or frozenset())}"
            return False
        held, whose = role_of(request.user), "your role"
        if held is not None and (match := getattr(request, "resolver_match", None)) is not None:
            team = owner_of(match.route, match.kwargs)
            if team is not None:
                held, whose = role_on(request.user, team), "your role in its team"
                if held is None:
                    raise Http404
                if not reading and getattr(view, "writes_for_installation", False):
                    held, whose = role_of(request.user), "your role"
            elif getattr(view, "writes_for_teams", False):
                held = highest_role(request.user)
        self.message = (
            f"this requires the role {needed}; {whose} is {held or 'none'}. An admin can add you to that group"
        )
        return held is not None and ORDER.index(held) >= ORDER.index(needed)
