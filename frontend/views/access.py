"""Checks before every page: the user's role, and the response to an invalid query."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBadRequest
from django.http.response import HttpResponseBase

from controlplane.jobs.roles import Role, may
from frontend.parameters import QueryError, readable

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]
Guarded = Callable[..., HttpResponseBase]


def needs(role: Role) -> Callable[[View[P]], Guarded]:
    """Restrict a view to ``role`` and above; others are sent to sign in, or get a page that names the missing role.

    A ``QueryError`` is answered by 400, with the error's sentence.
    """

    def decorate(view: View[P]) -> Guarded:
        @wraps(view)
        def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not may(request.user, role):
                raise PermissionDenied(
                    f"{request.user.get_username()} is not {role}: ask an admin to add you to the group {role!s}"
                )
            try:
                readable(request.GET)
                return view(request, *args, **kwargs)
            except QueryError as error:
                return HttpResponseBadRequest(str(error), content_type="text/plain; charset=utf-8")

        return login_required(guarded)

    return decorate


def rights(request: HttpRequest) -> dict[str, Any]:
    """The user's permissions, for templates."""
    return {"may_operate": may(request.user, Role.OPERATOR), "may_admin": may(request.user, Role.ADMIN)}
