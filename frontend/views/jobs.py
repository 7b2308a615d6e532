"""Pages of jobs: the list, one job, and the form that submits another."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from controlplane.jobs import selectors, tokens
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from controlplane.protocol.spec import parse_spec
from frontend import presets
from frontend.figures import FIGURES
from frontend.parameters import one_of
from frontend.queries import jobs as job_list
from frontend.queries import pending_requests
from frontend.queries.cache import of_job
from frontend.queries.copying import copy_of
from frontend.queries.figures import MAX_WORKERS
from frontend.queries.lanes import lanes, ranks
from frontend.tabs import TABS, tab_of
from frontend.views.access import needs, rights
from frontend.views.freshness import data_age


@needs(Role.VIEWER)
def jobs_page(request: HttpRequest) -> HttpResponse:
    """The list, or only its rows if a live part requests them."""
    search, state = request.GET.get("q", "").strip()[:100], one_of(request.GET, "state", ("", *job_list.FILTERS))
    page, lines = job_list.job_page(now=timezone.now(), search=search, state=state, number=request.GET.get("page", 1))
    hidden = [name for name in request.GET.get("hide", "").split(",") if name in job_list.COLUMNS]
    columns = {"columns": job_list.COLUMNS, "hidden_columns": hidden, "hidden": " ".join(hidden)}
    context = columns | {
        "page": page,
        "jobs": lines,
        "search": search,
        "state": state,
        "filters": list(job_list.FILTERS),
    }
    template = "parts/jobs_table.html" if request.headers.get("HX-Request") else "pages/jobs.html"
    return render(request, template, rights(request) | context)


@needs(Role.VIEWER)
def job_page(request: HttpRequest, job_id: int) -> HttpResponse:
    """The whole page of one job."""
    return _job(request, job_id, "pages/job.html", {})


@needs(Role.VIEWER)
def job_live(request: HttpRequest, job_id: int) -> HttpResponse:
    """The live parts of a job's page, which replace the current ones."""
    return _job(request, job_id, "pages/job_live.html", {"oob": True})


def _job(request: HttpRequest, job_id: int, template: str, more: dict[str, Any]) -> HttpResponse:
    job = get_object_or_404(selectors.jobs(), pk=job_id)
    name = tab_of(request.GET)
    tab = TABS[name]
    context = tab.context(job, request.GET)
    spec = parse_spec(job.spec)
    usual = tab.figures_for(spec.workers)
    shown = () if tab.of_servers and spec.attached else (*usual, *tab.charts_of(job))
    drawn = context["lanes"] if "lanes" in context else of_job("lanes", job, lanes)
    page: dict[str, Any] = {
        "job": job_list.one_job(job, timezone.now()),
        "speed_up": drawn.gained,
        "tab": tab,
        "tab_name": name,
        "tabs": TABS,
        "requests": pending_requests.open_lines(job, timezone.now()),
        "questions": presets.questions(),
        "figures": {figure: FIGURES[figure] for figure in shown},
        "figures_grid": name if usual == tab.figures else "heatmap",
        "charts_share_a_view": any(FIGURES[figure].marked for figure in shown),
    }
    if not job.is_over:
        page |= data_age(job.pk)
    if page["charts_share_a_view"] and "oob" not in more:
        page |= {"tops": (4, 8, 16), "ranks": ranks(job), "most_ranks": MAX_WORKERS}
    return render(request, template, rights(request) | page | context | more)


@needs(Role.OPERATOR)
@require_POST
def rotate_token(request: HttpRequest, job_id: int) -> HttpResponse:
    """A new token of an attached job, shown once, in the environment that uses it."""
    job, grace = get_object_or_404(selectors.jobs(), pk=job_id), request.POST.get("grace_s", "0")
    context: dict[str, Any] = {"url": settings.PACELINE_URL, "job_id": job.pk}
    grace_s = min(int(grace), tokens.MAX_GRACE_S) if grace.isdecimal() and len(grace) < 6 else 0
    if job.is_over:
        context["refused"] = f"The job is over ({job.state}): its tokens ended with it."
    elif job.launch != "attached":
        context["refused"] = f"{job} has no token for ranks: our agents start its workers, each with its own key."
    else:
        context["token"] = tokens.token_issue(job=job, actor=request.user.get_username(), grace_s=grace_s)
    return render(request, "parts/new_token.html", context)


@needs(Role.OPERATOR)
def submit_page(request: HttpRequest) -> HttpResponse:
    """The form; it posts to REST itself, so that the JSON and the curl command that it shows are its exact request."""
    address = request.build_absolute_uri(API_JOBS)
    context: dict[str, Any] = {"presets": presets.PRESETS, "options": presets.options(), "jobs_url": address}
    context |= {"predicting": presets.predicting(), "details": presets.details()}
    if copied := request.GET.get("copy", ""):
        jobs = Job.objects.select_related("simulation")
        context["copied"] = copy_of(get_object_or_404(jobs, pk=copied if copied.isdecimal() else 0))
    context |= {"back": reverse("jobs"), "attach_url": settings.PACELINE_URL}
    return render(request, "pages/submit.html", rights(request) | context)


API_JOBS = "/api/v1/jobs"
