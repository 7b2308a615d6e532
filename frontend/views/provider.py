"""Sign-in with the OpenID Connect provider: redirect and callback."""

from http import HTTPStatus
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import authenticate, login
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.people.addresses import client_address
from controlplane.people.claims import SignInRefused, provider

COOKIE: Final = "oidc"
COOKIE_S: Final = 600
"""Time limit of a sign-in at the provider."""

PATH: Final = "/login/oidc/"


@never_cache
@require_GET
def provider_begin(request: HttpRequest) -> HttpResponse:
    """Redirect to the provider. The expected state is in a cookie, so that nothing is stored before the sign-in."""
    from controlplane.people.provider import begin

    try:
        url, kept = begin(settings.PACELINE_URL + reverse("oidc-return"))
    except SignInRefused as refusal:
        return _refused(request, refusal)
    response = HttpResponseRedirect(url)
    held = signing.dumps({"kept": kept, "next": _safe_next(request)}, salt=COOKIE, compress=True)
    response.set_cookie(
        COOKIE,
        held,
        max_age=COOKIE_S,
        path=PATH,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )
    return response


@never_cache
@require_GET
def provider_return(request: HttpRequest) -> HttpResponse:
    """Sign in a user who returns from the provider."""
    from controlplane.people.provider import finish

    held = _held(request)
    try:
        claims = finish(request.GET.dict(), held["kept"])
        user = authenticate(request, claims=claims, address=client_address(request))
        if user is None:
            raise SignInRefused("The sign-in failed.")
    except SignInRefused as refusal:
        response = _refused(request, refusal)
    else:
        request.signed_in_by = "identity provider"  # type: ignore[attr-defined]
        login(request, user)
        request.session.set_expiry(provider().session_lasts)
        response = redirect(held["next"] or reverse("overview"))
    response.delete_cookie(COOKIE, path=PATH, samesite="Lax")
    return response


def _held(request: HttpRequest) -> dict[str, Any]:
    try:
        found: dict[str, Any] = signing.loads(request.COOKIES.get(COOKIE, ""), salt=COOKIE, max_age=COOKIE_S)
    except signing.BadSignature:
        return {"kept": {}, "next": ""}
    return found


def _safe_next(request: HttpRequest) -> str:
    """The requested page; empty if it is not within Paceline."""
    requested = request.GET.get("next", "")[:500]
    allowed = url_has_allowed_host_and_scheme(requested, allowed_hosts=None, require_https=request.is_secure())
    return requested if allowed and requested.startswith("/") else ""


def _refused(request: HttpRequest, refusal: SignInRefused) -> HttpResponse:
    context = {"sentence": str(refusal), "cure": refusal.cure, "configured": settings.OIDC is not None}
    status = HTTPStatus(refusal.status)
    return render(request, "pages/provider_refused.html", context, status=status)
