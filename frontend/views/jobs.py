"""Pages of jobs: the list, one job, and the submit form."""

import json
from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from controlplane.api.actions import check_job
from controlplane.api.limits import SPEC_BYTES
from controlplane.api.problems import Problem
from controlplane.core.states import JobState
from controlplane.jobs import selectors, tokens
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from controlplane.jobs.stored_specs import stored_spec
from controlplane.jobs.viewing import visible
from controlplane.protocol.spec import SpecError
from frontend import presets
from frontend.figures import FIGURES
from frontend.parameters import one_of
from frontend.queries import jobs as job_list
from frontend.queries import pending_requests
from frontend.queries.cache import of_job
from frontend.queries.clock import JobClock
from frontend.queries.copying import copy_of
from frontend.queries.figures import MAX_WORKERS
from frontend.queries.lanes import lanes, ranks
from frontend.queries.logs import failure
from frontend.queries.notes import TAG, all_tags, tags_of
from frontend.queries.parameter_table import GROUPS, parameter_table
from frontend.tabs import TABS, tab_of
from frontend.views.access import needs, operated, own_teams, rights, team_filter
from frontend.views.freshness import data_age


@needs(Role.VIEWER)
def jobs_page(request: HttpRequest) -> HttpResponse:
    """The list, or only its rows if a live part requests them."""
    search, state = request.GET.get("q", "").strip()[:100], one_of(request.GET, "state", ("", *job_list.FILTERS))
    tag = request.GET.get("tag", "").strip()[:TAG]
    teams = team_filter(request)
    page, lines = job_list.job_page(
        now=timezone.now(),
        search=search,
        state=state,
        tag=tag,
        team=teams["team"],
        number=request.GET.get("page", 1),
    )
    hidden = [name for name in request.GET.get("hide", "").split(",") if name in job_list.COLUMNS]
    columns = {"columns": job_list.COLUMNS, "hidden_columns": hidden, "hidden": " ".join(hidden)}
    context = columns | {
        "page": page,
        "jobs": lines,
        "search": search,
        "state": state,
        "filters": list(job_list.FILTERS),
        "tag": tag,
        "tags_by_job": tags_of(line.id for line in lines),
        "operated": operated(Job, request, (line.id for line in lines)),
    }
    if not request.headers.get("HX-Request"):
        context |= {"all_tags": all_tags()}
    template = "parts/jobs_table.html" if request.headers.get("HX-Request") else "pages/jobs.html"
    return render(request, template, rights(request) | teams | context)


@needs(Role.VIEWER)
def parameters_page(request: HttpRequest) -> HttpResponse:
    """Runs with the parameters in which they differ."""
    search, state = request.GET.get("q", "").strip()[:100], one_of(request.GET, "state", ("", *job_list.FILTERS))
    teams = team_filter(request)
    tag, group = request.GET.get("tag", "").strip()[:TAG], one_of(request.GET, "group", GROUPS)
    context = {
        "table": parameter_table(
            now=timezone.now(), search=search, state=state, tag=tag, group=group, team=teams["team"]
        ),
        "search": search,
        "state": state,
        "tag": tag,
        "group": group,
        "all_groups": GROUPS,
        "all_tags": all_tags(),
        "filters": list(job_list.FILTERS),
    }
    return render(request, "pages/parameters.html", rights(request) | teams | context)


@needs(Role.VIEWER)
def job_page(request: HttpRequest, job_id: int) -> HttpResponse:
    """The whole page of one job."""
    return _job(request, job_id, "pages/job.html", {})


@needs(Role.VIEWER)
def job_live(request: HttpRequest, job_id: int) -> HttpResponse:
    """The live parts of a job's page."""
    return _job(request, job_id, "pages/job_live.html", {"oob": True})


def _job(request: HttpRequest, job_id: int, template: str, more: dict[str, Any]) -> HttpResponse:
    job = get_object_or_404(selectors.jobs(), pk=job_id)
    name = tab_of(request.GET)
    tab = TABS[name]
    context = tab.context(job, request.GET)
    spec = stored_spec(job)
    usual = tab.figures_for(spec.workers)
    shown = () if tab.of_servers and spec.attached else (*usual, *tab.charts_of(job))
    drawn = context["lanes"] if "lanes" in context else of_job("lanes", job, lanes)
    page: dict[str, Any] = {
        "tags": tags_of([job.pk]).get(job.pk, []),
        "job": job_list.one_job(job, timezone.now()),
        "speed_up": drawn.gained,
        "speed_up_is_estimated": drawn.estimated,
        "tab": tab,
        "tab_name": name,
        "tabs": TABS,
        "requests": pending_requests.open_lines(job, timezone.now()),
        "questions": presets.questions(),
        "figures": {figure: FIGURES[figure] for figure in shown},
        "figures_grid": name if usual == tab.figures else "heatmap",
        "charts_share_a_view": any(FIGURES[figure].marked for figure in shown),
    }
    if "oob" not in more:
        page |= {"all_tags": all_tags()}
    if job.state == JobState.FAILED:
        page |= {"failure": of_job("failure", job, failure)}
    if not job.is_over:
        page |= data_age(job.pk)
    if page["charts_share_a_view"] and "oob" not in more:
        page |= {"tops": (4, 8, 16), "ranks": ranks(job), "most_ranks": MAX_WORKERS, "lasts": LASTS}
    return render(request, template, rights(request) | page | context | more)


@needs(Role.VIEWER)
def job_clock(request: HttpRequest, job_id: int) -> JsonResponse:
    """The job's clock, by which charts with different axes show the same range."""
    job = get_object_or_404(selectors.jobs(), pk=job_id)
    return JsonResponse(of_job("clock", job, lambda job: JobClock(job).axes()))


@needs(Role.OPERATOR)
@require_POST
def rotate_token(request: HttpRequest, job_id: int) -> HttpResponse:
    """Create a new token of an attached job, shown once as environment variables."""
    job, grace = get_object_or_404(selectors.jobs(), pk=job_id), request.POST.get("grace_s", "0")
    context: dict[str, Any] = {"url": settings.PACELINE_URL, "job_id": job.pk}
    grace_s = min(int(grace), tokens.MAX_GRACE_S) if grace.isdecimal() and len(grace) < 6 else 0
    if job.is_over:
        context["refused"] = f"The job has ended ({job.state}); its tokens expired with it."
    elif job.launch != "attached":
        context["refused"] = (
            f"{job} has no token for ranks: its workers are started by Paceline's agents, each with its own key."
        )
    else:
        context["token"] = tokens.token_issue(job=job, actor=request.user.get_username(), grace_s=grace_s)
    return render(request, "parts/new_token.html", context)


@needs(Role.OPERATOR, for_teams=True)
def submit_page(request: HttpRequest) -> HttpResponse:
    """The form. It posts to REST, so that the JSON and the curl command that it shows are the exact request."""
    address = request.build_absolute_uri(API_JOBS)
    context: dict[str, Any] = {"presets": presets.PRESETS, "offered": presets.offered(), "jobs_url": address}
    context |= {"details": presets.details(), "questions": presets.questions()}
    if copied := request.GET.get("copy", ""):
        jobs = visible(Job.objects.select_related("simulation"))
        context["copied"] = copy_of(get_object_or_404(jobs, pk=copied if copied.isdecimal() else 0))
    context |= {"back": reverse("jobs"), "attach_url": settings.PACELINE_URL}
    context |= own_teams(request)
    return render(request, "pages/submit.html", rights(request) | context)


@needs(Role.OPERATOR, for_teams=True)
@require_POST
def submit_look(request: HttpRequest) -> JsonResponse:
    """Why a job would be refused or would wait, while its form is filled in; an incomplete spec is not an error."""
    try:
        document = json.loads(request.body[:SPEC_BYTES])
        team = request.GET.get("team") or None
        _, finding, outcome = check_job(document=document, user=cast(User, request.user), team=team)
    except (ValueError, RecursionError, SpecError):
        return JsonResponse({"outcome": "invalid", "finding": ""})
    except Problem as problem:  # a quota, or no team to submit for
        return JsonResponse({"outcome": "refused", "finding": str(problem.detail)})
    return JsonResponse({"outcome": outcome, "finding": finding})


API_JOBS = "/api/v1/jobs"

LASTS = {60: "last minute", 300: "last 5 min", 900: "last 15 min", 3_600: "last hour", 21_600: "last 6 h"}
"""Chart ranges that follow the data, in seconds."""
