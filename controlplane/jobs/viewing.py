"""Limits reads to the jobs and machines that the current request may see: its user's teams', and those without a team.

The current user is a context variable, so reads need no argument for it. Reads outside a request, and
inside ``unlimited()``, see everything.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.apps import apps
from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from controlplane.jobs.roles import Role, role_of

M = TypeVar("M", bound=Model)
_request: ContextVar[HttpRequest | None] = ContextVar("request", default=None)


class Viewing(MiddlewareMixin):
    """Middleware that sets the current request. A streamed body is read after it: limit its rows beforehand."""

    def process_request(self, request: HttpRequest) -> None:
        """Set the current request."""
        _request.set(request)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Reset it."""
        _request.set(None)
        return response


def viewer() -> User | AnonymousUser | None:
    """The user of the current request; None outside requests."""
    request = _request.get()
    return getattr(request, "user", None) if request is not None else None


@contextmanager
def unlimited() -> Iterator[None]:
    """Context in which reads see everything: for values that are shared by all users and limited afterwards."""
    token = _request.set(None)
    try:
        yield
    finally:
        _request.reset(token)


def visible(rows: "QuerySet[M]", team: str = "team") -> "QuerySet[M]":
    """The rows that the current user may see; ``team`` is the path to their owner."""
    limit = limits(team)
    return rows if limit is None else rows.filter(limit)


def limits(team: str = "team") -> Q | None:
    """The condition on rows; None: none, for admins, outside requests, and where there are no
    teams.
    """
    request, user = _request.get(), viewer()
    if request is None or user is None:
        return None
    known: tuple[object, bool] | None = getattr(request, "_sees_all", None)
    if known is None or known[0] is not user:  # REST framework authenticates after the middlewares
        known = user, role_of(user) == Role.ADMIN or not apps.get_model("people", "Team").objects.exists()
        request._sees_all = known  # type: ignore[attr-defined]
    if known[1]:
        return None
    own: Any = user.memberships.values("team") if user.is_authenticated else []
    return Q(**{f"{team}__isnull": True}) | Q(**{f"{team}__in": own})


def viewing_key() -> tuple[int, ...] | None:
    """Cache key for values that depend on the viewer: the teams that they are limited to; None: not limited."""
    user = viewer()
    if limits() is None or user is None:
        return None
    rows = user.memberships.values_list("team", flat=True) if isinstance(user, User) else ()
    return tuple(sorted(rows))
