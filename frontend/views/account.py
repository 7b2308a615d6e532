"""The page of API tokens and sessions: the user's own, and for admins those of all users."""

from datetime import timedelta
from typing import Any, cast

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.jobs.roles import ORDER, Role, role_of
from controlplane.people.models import Session
from controlplane.people.scopes import Scope, ScopesRefused, parse
from controlplane.people.sessions import live_sessions
from controlplane.people.tokens import TokenRefused, live_tokens, token_create
from controlplane.people.users import line_of, users_listed
from controlplane.protocol.text import is_plain
from frontend.parameters import QueryError
from frontend.views.access import needs, rights

LIFETIMES = {1: "1 day", 7: "7 days", 30: "30 days", 90: "90 days", 365: "1 year"}
USUAL_DAYS = 30
USERS_PER_PAGE = 50


@never_cache
@needs(Role.VIEWER)
def account_page(request: HttpRequest) -> HttpResponse:
    """The whole page; ``?of=everyone`` for admins."""
    return render(request, "pages/account.html", _account(request))


@never_cache
@needs(Role.VIEWER)
def account_live(request: HttpRequest) -> HttpResponse:
    """The live part of the page."""
    return render(request, "parts/account_tables.html", _account(request) | {"oob": True})


@never_cache
@require_POST
@needs(Role.VIEWER)
def account_token(request: HttpRequest) -> HttpResponse:
    """A new API token, shown once."""
    context: dict[str, Any] = {}
    user = cast(User, request.user)
    try:
        _, context["secret"] = token_create(user=user, actor=user.get_username(), **_fields(request))
    except TokenRefused as error:
        context["refusal"] = str(error)
    return render(request, "parts/account_token.html", _account(request) | context | {"oob": True})


def _account(request: HttpRequest) -> dict[str, Any]:
    offered = rights(request)
    everyone = offered["may_admin"] and request.GET.get("of") == "everyone"
    owner = None if everyone else cast(User, request.user)
    held = role_of(cast(User, request.user)) or Role.VIEWER
    key = request.session.session_key
    return offered | {
        "everyone": everyone,
        "users": _users(request) if everyone else None,
        "tokens": live_tokens(owner),
        "sessions": live_sessions(owner),
        "here": Session.objects.filter(session_key=key).values_list("number", flat=True).first(),
        "scopes": list(Scope),
        "roles": ORDER[: ORDER.index(held) + 1],
        "lifetimes": LIFETIMES,
        "usual_days": USUAL_DAYS,
    }


def _users(request: HttpRequest) -> Page[User]:
    """One page of all users; each gets a ``line``."""
    page = Paginator(users_listed(), USERS_PER_PAGE).get_page(request.GET.get("users", 1))
    for user in page.object_list:
        user.line = line_of(user)  # type: ignore[attr-defined]
    return page


def _fields(request: HttpRequest) -> dict[str, Any]:
    """The values of the form.

    Raises:
        QueryError: for an invalid field.
    """
    name, days, role = (request.POST.get(field, "").strip() for field in ("name", "days", "role"))
    if not 0 < len(name) <= 100 or not is_plain(name):
        raise QueryError("name", name, "1 to 100 characters on one line")
    if days not in map(str, LIFETIMES):
        raise QueryError("days", days, f"one of {', '.join(map(str, LIFETIMES))}")
    if role not in list(ORDER):
        raise QueryError("role", role, f"one of {', '.join(ORDER)}")
    try:
        scopes = parse(request.POST.getlist("scopes"))
    except ScopesRefused as error:
        raise QueryError("scopes", ", ".join(request.POST.getlist("scopes")), str(error)) from None
    return {"name": name, "role": Role(role), "lifetime": timedelta(days=int(days)), "scopes": scopes}
