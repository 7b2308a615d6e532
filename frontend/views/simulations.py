"""Pages of simulations: the list with the form of another, and one of them."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from controlplane.jobs.roles import Role
from frontend.figures import SIMULATIONS
from frontend.queries import simulations as queries
from frontend.views.access import needs, rights


@needs(Role.VIEWER)
def simulations_page(request: HttpRequest) -> HttpResponse:
    """The list, or only its rows where a live part asks."""
    context = {
        "page": queries.simulation_page(request.GET.get("page", 1)),
        "scenarios": queries.offered(),
        "limited": queries.limited(),
    }
    template = "parts/simulations_table.html" if request.headers.get("HX-Request") else "pages/simulations.html"
    return render(request, template, rights(request) | context)


@needs(Role.VIEWER)
def simulation_page(request: HttpRequest, pk: int) -> HttpResponse:
    """One simulation, or only its live part."""
    row = get_object_or_404(queries.simulations(), pk=pk)
    live = bool(request.headers.get("HX-Request"))
    context = {
        "simulation": row,
        "over": row.finished_at is not None,
        "scenario": queries.scenario_of(row),
        "result": queries.result(row),
        "figures": SIMULATIONS,
        "oob": live,
    }
    return render(request, "parts/simulation.html" if live else "pages/simulation.html", rights(request) | context)
