"""Pages of simulations: the list with the form for a new one, and one simulation."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from controlplane.jobs.roles import Role
from controlplane.simulator.recorded_run import job_of
from frontend.figures import SIMULATIONS
from frontend.queries import simulations as queries
from frontend.views.access import needs, own_teams, rights, team_filter

USUAL = "demo"
"""The scenario that is selected by default."""


@needs(Role.VIEWER)
def simulations_page(request: HttpRequest) -> HttpResponse:
    """The list, or only its rows if a live part requests them."""
    teams = team_filter(request)
    page = queries.simulation_page(request.GET.get("page", 1), teams["team"])
    context = rights(request) | teams | {"page": page}
    if request.headers.get("HX-Request"):
        return render(request, "parts/simulations_table.html", context)
    selected = queries.selected_job(request.GET)
    context |= own_teams(request) | {
        "scenarios": queries.offered(),
        "scenario_groups": queries.grouped(),
        "recorded_jobs": queries.recorded_jobs(),
        "selected": selected,
        "chosen": "job" if selected.number else USUAL,
    }
    return render(request, "pages/simulations.html", context)


@needs(Role.VIEWER)
def simulation_job(request: HttpRequest) -> HttpResponse:
    """The available simulations on the machines of a recorded job, for the form."""
    found = queries.offered_by(request.GET)
    return render(request, "parts/simulation_picks.html", {"each": found, "shown": found.name})


@needs(Role.VIEWER)
def simulation_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One simulation, or only its live part."""
    row = get_object_or_404(queries.simulations(), pk=pk)
    live = bool(request.headers.get("HX-Request"))
    context = {
        "simulation": row,
        "over": row.finished_at is not None,
        "scenario": queries.scenario_of(row),
        "source": job_of(row.scenario),
        "result": queries.result(row),
        "figures": SIMULATIONS,
        "oob": live,
    }
    return render(request, "parts/simulation.html" if live else "pages/simulation.html", rights(request) | context)
