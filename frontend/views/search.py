"""Global search, saved views and pinned charts."""

from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from controlplane.jobs.roles import Role
from frontend.models import SavedView
from frontend.parameters import readable
from frontend.queries.saved_views import save
from frontend.queries.search import search
from frontend.views.access import needs


@never_cache
@needs(Role.VIEWER)
def search_results(request: HttpRequest) -> HttpResponse:
    """The matches, as a list for the search dialog."""
    text = request.GET.get("q", "").strip()
    return render(request, "parts/search_results.html", {"found": search(text, _user(request)), "sought": text})


@needs(Role.VIEWER)
@require_POST
def view_save(request: HttpRequest) -> HttpResponse:
    """Save the URL of a page, or pin one of its charts."""
    readable(request.POST)
    fields = {name: request.POST.get(name, "") for name in ("name", "address", "figure")}
    return JsonResponse({"id": save(user=_user(request), **fields).pk})


@needs(Role.VIEWER)
@require_POST
def view_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Delete one's own saved view."""
    get_object_or_404(SavedView, pk=pk, user=_user(request)).delete()
    return HttpResponse(status=204)


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)
