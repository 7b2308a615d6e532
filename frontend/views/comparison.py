"""The page that compares 2 to 6 jobs."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.jobs import selectors
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from frontend.build import compared_jobs
from frontend.figures import COMPARISONS
from frontend.figures.rows import View
from frontend.parameters import QueryError, positive
from frontend.queries import comparison
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def comparison_page(request: HttpRequest) -> HttpResponse:
    """The jobs in ``jobs``, compared with the one in ``baseline``; without any, a list to select from."""
    numbers = ",".join(request.GET.getlist("jobs"))
    if not numbers:
        return render(request, "pages/comparison.html", rights(request) | {"recent": selectors.jobs()[:12]})
    jobs = compared_jobs(numbers)
    baseline = _baseline(request.GET.get("baseline", ""), jobs)
    percent = positive(request.GET, "target", "an accuracy in percent, above 0 and at most 100", most=100.0)
    target = None if percent is None else percent / 100
    sides = comparison.compared(jobs, View())
    common = target if target is not None else comparison.common_target(sides)
    context = {
        "jobs": jobs,
        "numbers": ",".join(str(job.pk) for job in jobs),
        "baseline": baseline,
        "target": common,
        "given_target": target,
        "results": comparison.results(jobs, sides, baseline, common),
        "differences": comparison.differences(jobs),
        "figures": COMPARISONS,
    }
    return render(request, "pages/comparison.html", rights(request) | context)


def _baseline(text: str, jobs: list[Job]) -> int:
    allowed = {str(job.pk): job.pk for job in jobs}
    if text and text not in allowed:
        raise QueryError("baseline", text, f"one of {', '.join(allowed)}")
    return allowed.get(text, jobs[0].pk)
