"""Sign-in by password, or by the single-use link that the demo prints."""

from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.views import LoginView, redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.jobs import login_links
from controlplane.people.addresses import client_address
from controlplane.people.throttle import Throttled


class SignIn(LoginView):
    """The sign-in page; signed-in users are redirected."""

    template_name = "pages/login.html"
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add the configured sign-in methods."""
        ways = {"provider": settings.OIDC and settings.OIDC.label, "local_accounts": settings.LOCAL_ACCOUNTS}
        return super().get_context_data(**kwargs) | ways

    def form_invalid(self, form: Any) -> HttpResponse:
        """The page again, with the error."""
        throttled: Throttled | None = getattr(self.request, "throttled", None)
        if throttled is None:
            return super().form_invalid(form)
        context = self.get_context_data(form=form, refusal=str(throttled))
        headers = {"Retry-After": str(throttled.wait_s)}
        return self.render_to_response(context, status=429, headers=headers)


@never_cache
def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """Replaces the sign-in form of Django's admin, so that only one page checks passwords."""
    if request.user.is_authenticated:
        raise PermissionDenied(f"{request.user.get_username()} is not a member of staff")
    return redirect_to_login(request.GET.get("next") or reverse("admin:index"))


@never_cache
@require_GET
def login_once(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in by a single-use link, from this machine only."""
    local = login_links.from_loopback(client_address(request))
    user = login_links.redeem(token) if local else None
    if user is None:
        return render(request, "pages/login_once_refused.html", {"local": local}, status=403)
    request.signed_in_by = "link"  # type: ignore[attr-defined]
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect(reverse("overview"))
