"""The page of the cost of waiting over all jobs."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from controlplane.jobs.roles import Role
from frontend.parameters import one_of
from frontend.queries.waiting import PERIODS, ledger
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def waiting_page(request: HttpRequest) -> HttpResponse:
    """The last days, by day and by job."""
    days = one_of(request.GET, "days", PERIODS)
    found = ledger(timezone.now().date(), int(days))
    context = {
        "days": days,
        "periods": PERIODS,
        "ledger": found,
        "most_day": max((spent.lost_s for _, spent, _ in found.days), default=0.0),
        "most_job": max((each.spent.lost_s for each in found.jobs), default=0.0),
    }
    return render(request, "pages/waiting.html", rights(request) | context)
