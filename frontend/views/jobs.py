"""Pages of jobs: the list, one job, and the form that submits another."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone

from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from frontend import presets
from frontend.figures import FIGURES
from frontend.figures.lanes import verdict
from frontend.queries import job as job_queries
from frontend.queries import jobs as job_list
from frontend.queries.lanes import lanes
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def jobs_page(request: HttpRequest) -> HttpResponse:
    """The list, or only its rows where a live part asks."""
    search, state = request.GET.get("q", "").strip()[:100], request.GET.get("state", "")
    if state and state not in job_list.FILTERS:
        return HttpResponseBadRequest(f"state: found {state[:40]!r}, expected one of {', '.join(job_list.FILTERS)}")
    page, lines = job_list.job_page(now=timezone.now(), search=search, state=state, number=request.GET.get("page", 1))
    context = {"page": page, "jobs": lines, "search": search, "state": state, "filters": list(job_list.FILTERS)}
    template = "parts/jobs_table.html" if request.headers.get("HX-Request") else "pages/jobs.html"
    return render(request, template, rights(request) | context)


@needs(Role.VIEWER)
def job_page(request: HttpRequest, job_id: int) -> HttpResponse:
    """One job, whole."""
    return _job(request, job_id, "pages/job.html", {"figures": FIGURES})


@needs(Role.VIEWER)
def job_live(request: HttpRequest, job_id: int) -> HttpResponse:
    """The live parts of a job's page, to be put in place."""
    return _job(request, job_id, "pages/job_live.html", {"oob": True})


def _job(request: HttpRequest, job_id: int, template: str, more: dict[str, Any]) -> HttpResponse:
    kinds, before = request.GET.get("decisions", "key"), request.GET.get("before", "")
    if kinds not in job_queries.KINDS:
        return HttpResponseBadRequest(
            f"decisions: found {kinds[:40]!r}, expected one of {', '.join(job_queries.KINDS)}"
        )
    if before and not (before.isdecimal() and len(before) < 18):
        return HttpResponseBadRequest(f"before: found {before[:40]!r}, expected the number of a decision")
    job = get_object_or_404(job_list.jobs(), pk=job_id)
    return render(request, template, rights(request) | _job_context(job, kinds, before) | more)


def _job_context(job: Job, kinds: str, before: str) -> dict[str, Any]:
    drawn, flags = lanes(job), job_queries.flags(job)
    return {
        "job": job_list.job_line(job, timezone.now()),
        "lanes": drawn,
        "verdict": verdict(drawn),
        "flags": flags,
        "open_flags": [flag for flag in flags if flag.closed_at is None],
        "decisions": job_queries.decisions(job, kinds=kinds, before=int(before) if before else None),
        "kinds": kinds,
        "all_kinds": list(job_queries.KINDS),
        "before": before,
        "per_page": job_queries.DECISIONS,
        "processes": job_queries.processes(job),
        "spec": job.spec,
    }


@needs(Role.OPERATOR)
def submit_page(request: HttpRequest) -> HttpResponse:
    """The form; it posts to REST itself, so that what it shows as JSON and curl is what it does."""
    address = request.build_absolute_uri(API_JOBS)
    context: dict[str, Any] = {"presets": presets.PRESETS, "options": presets.options(), "jobs_url": address}
    context["predicting"] = presets.predicting()
    if copied := request.GET.get("copy", ""):
        context["copied"] = get_object_or_404(Job, pk=copied if copied.isdecimal() else 0).spec
    return render(request, "pages/submit.html", rights(request) | context | {"back": reverse("jobs")})


API_JOBS = "/api/v1/jobs"
