"""The age of a page's data, polled by pages while no ticks arrive."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs.roles import Role
from frontend.queries import freshness, overview
from frontend.views.access import needs


def data_age(job: int | None = None) -> dict[str, Any]:
    """The context of a page's notice and status chip, for one job or for all."""
    return {
        "history_notice": overview.history_notice(),
        "data_age": freshness.oldest(None if job is None else [job]),
        "about": job,
    }


@needs(Role.VIEWER)
def freshness_live(request: HttpRequest) -> HttpResponse:
    """The notice and the status chip."""
    job = request.GET.get("about", "")
    number = int(job) if job.isdecimal() and len(job) < 18 else None
    return render(request, "parts/freshness_live.html", data_age(number) | {"oob": True})
