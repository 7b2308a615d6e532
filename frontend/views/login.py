"""Signing in: by password, or once by the link that a demo prints."""

from django.contrib.auth import login
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from controlplane.jobs import login_links


class SignIn(LoginView):
    """The sign-in page; whoever is signed in already goes on."""

    template_name = "pages/login.html"
    redirect_authenticated_user = True


@never_cache
@require_GET
def login_once(request: HttpRequest, token: str) -> HttpResponse:
    """Sign in by a single-use link, from this machine only."""
    local = login_links.from_loopback(request)
    user = login_links.redeem(token) if local else None
    if user is None:
        return render(request, "pages/login_once_refused.html", {"local": local}, status=403)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect(reverse("overview"))
