"""The page that lays 2 to 6 jobs side by side."""

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import render

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from frontend.build import FigureQueryError, compared_jobs
from frontend.figures import COMPARISONS
from frontend.figures.rows import View
from frontend.queries import comparison
from frontend.queries.jobs import jobs as listed
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def comparison_page(request: HttpRequest) -> HttpResponse:
    """The jobs named by ``jobs``, against the one named by ``baseline``; without any, how to pick some."""
    numbers = ",".join(request.GET.getlist("jobs"))
    if not numbers:
        return render(request, "pages/comparison.html", rights(request) | {"recent": listed()[:12]})
    try:
        jobs = compared_jobs(numbers)
        baseline = _baseline(request.GET.get("baseline", ""), jobs)
        target = _target(request.GET.get("target", ""))
    except FigureQueryError as error:
        return HttpResponseBadRequest(str(error))
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
        raise FigureQueryError("baseline", text[:40], f"one of {', '.join(allowed)}")
    return allowed.get(text, jobs[0].pk)


def _target(text: str) -> float | None:
    """An accuracy in percent."""
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 < found <= 100.0:
        raise FigureQueryError("target", text[:40], "an accuracy in percent, above 0 and at most 100")
    return found / 100
