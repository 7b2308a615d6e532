"""Access checks of pages: the user's role, and responses to invalid queries."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render

from controlplane.api.permissions import owner_of
from controlplane.api.rates import excess, refusal, sentence
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.jobs.roles import ORDER, Role, highest_role, may, operates, role_of, role_on, teams_of
from controlplane.jobs.stored_specs import UnreadableSpec
from controlplane.jobs.viewing import limits
from controlplane.people.teams import choices_of, seen_by
from frontend.parameters import QueryError, readable

SAFE = ("GET", "HEAD", "OPTIONS")
P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
Guarded = Callable[..., HttpResponseBase]


def needs(role: Role, *, for_teams: bool = False) -> Callable[[View[P]], Guarded]:
    """Restrict a view to ``role`` and above. Others are redirected to sign in, or see which role they need.

    With ``for_teams``, the role in any team is enough; actions of the page are then checked for their team. A
    ``QueryError`` becomes a response 400 with its message, and an unreadable spec becomes an error page.
    """

    def decorate(view: View[P]) -> Guarded:
        @wraps(view)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            held = role_on(request.user, _owner(request))
            if held is None and role_of(request.user) is not None:
                raise Http404
            if for_teams:
                held = highest_role(request.user)
            request.held_role = held  # type: ignore[attr-defined]
            if held is None or ORDER.index(held) < ORDER.index(role):
                raise PermissionDenied(
                    f"{request.user.get_username()} is not {role}: ask an admin to add you to the group {role!s}"
                )
            if found := excess(request, user=request.user, reading=request.method in SAFE, page=True):
                return refusal(request, sentence(*found), found[1])
            try:
                readable(request.GET)
                return view(request, *args, **kwargs)
            except UnreadableSpec as error:
                return render(request, "pages/unreadable.html", {"sentence": str(error)}, status=409)
            except QueryError as error:
                return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")

        return login_required(guarded)

    return decorate


def _owner(request: HttpRequest) -> int | None:
    match = request.resolver_match
    return owner_of(match.route, match.kwargs) if match is not None else None


def holds(request: HttpRequest, role: Role) -> bool:
    """Whether the user has this role or a higher one on the page's subject."""
    held: Role | None = getattr(request, "held_role", None) or role_of(request.user)
    return held is not None and ORDER.index(held) >= ORDER.index(role)


def operated(model: type[Job] | type[Agent], request: HttpRequest, numbers: Iterable[int | None]) -> set[int]:
    """The jobs or machines in a list that the user may operate, by the role in the owning team."""
    listed = {number for number in numbers if number is not None}
    if limits() is None:  # an admin, or there are no teams
        return listed if may(request.user, Role.OPERATOR) else set()
    rows: Any = model.objects.filter(pk__in=listed)
    may_operate = operates(request.user)
    return {pk for pk, team in rows.values_list("pk", "team_id") if may_operate(team)}


def team_filter(request: HttpRequest) -> dict[str, Any]:
    """The team by which a list is filtered, and the available teams."""
    return {"team": request.GET.get("team", "").strip()[:60], "all_teams": seen_by(cast(User, request.user))}


def own_teams(request: HttpRequest) -> dict[str, Any]:
    """The teams for which the user may submit; the default is the first, otherwise none."""
    user = cast(User, request.user)
    return {"own_teams": choices_of(user), "has_usual_team": bool(teams_of(user, Role.OPERATOR))}


def rights(request: HttpRequest) -> dict[str, Any]:
    """The user's permissions on the page's subject, for templates."""
    return {
        "may_operate": holds(request, Role.OPERATOR),
        "may_admin": holds(request, Role.ADMIN),
        "may_submit": highest_role(request.user) in (Role.OPERATOR, Role.ADMIN),
    }
