"""REST views of figures as plotly JSON, reports, and the timeline as a trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import IF_NONE_MATCH
from controlplane.fleet.models import Agent
from controlplane.jobs.models import Job
from controlplane.telemetry.models import Simulation
from frontend.build import (
    UnknownFigure,
    build_comparison,
    build_figure,
    build_machine,
    build_simulation,
    build_trace,
    comparison_etag,
    figure_etag,
    machine_etag,
    simulation_etag,
)
from frontend.parameters import QueryError
from frontend.report import render_report

WINDOW = (
    OpenApiParameter("first", OpenApiTypes.INT, description="First iteration of the window (default: the latest)."),
    OpenApiParameter("count", OpenApiTypes.INT, description="Number of iterations in the window, at most 20."),
)

FIGURE_REPLIES = {
    200: {"type": "object", "properties": {"data": {"type": "array"}, "layout": {"type": "object"}}},
    304: OpenApiResponse(description="Not modified."),
}


class FigureView(APIView):
    """A figure, as plotly JSON."""

    @extend_schema(
        parameters=[
            IF_NONE_MATCH,
            OpenApiParameter("theme", OpenApiTypes.STR, enum=["light", "dark"]),
            OpenApiParameter("x", OpenApiTypes.STR, description="Horizontal axis."),
            OpenApiParameter("ranks", OpenApiTypes.STR, description="Workers to show, separated by commas."),
            OpenApiParameter("metric", OpenApiTypes.STR, description="Metric shown."),
            OpenApiParameter(
                "scale",
                OpenApiTypes.STR,
                enum=["ratio", "absolute", "linear", "log", "now", "before"],
                description="Colour or loss scale, or which placement to show (default: the first option).",
            ),
            OpenApiParameter("accuracy", OpenApiTypes.STR, description="A target, such as 0.95 or 95%."),
            OpenApiParameter("loss", OpenApiTypes.STR, description="A target, such as 0.2."),
            *WINDOW,
        ],
        responses=FIGURE_REPLIES,
    )
    def get(self, request: Request, pk: int, name: str) -> HttpResponse:
        """A figure of the job. Its ETag changes when the job's history changes."""
        job, query = get_object_or_404(Job, pk=pk), request.query_params
        with _figure_problems():
            return _once(request, figure_etag(name, job, query), lambda: build_figure(name, job, query))


class ComparisonView(APIView):
    """A figure of several jobs, as plotly JSON."""

    @extend_schema(
        parameters=[
            IF_NONE_MATCH,
            OpenApiParameter("jobs", OpenApiTypes.STR, required=True, description="2 to 6 jobs, such as 3,5."),
            OpenApiParameter("theme", OpenApiTypes.STR, enum=["light", "dark"]),
            OpenApiParameter("x", OpenApiTypes.STR, description="Horizontal axis."),
            OpenApiParameter("scale", OpenApiTypes.STR, enum=["linear", "log"], description="Scale of the loss axis."),
        ],
        responses=FIGURE_REPLIES,
    )
    def get(self, request: Request, name: str) -> HttpResponse:
        """A figure that compares jobs. Its ETag changes when the history of any of them changes."""
        query = request.query_params
        with _figure_problems():
            return _once(request, comparison_etag(name, query), lambda: build_comparison(name, query))


class MachineFigureView(APIView):
    """A figure of one machine, as plotly JSON."""

    @extend_schema(
        parameters=[IF_NONE_MATCH, OpenApiParameter("theme", OpenApiTypes.STR, enum=["light", "dark"])],
        responses=FIGURE_REPLIES,
    )
    def get(self, request: Request, pk: int, name: str) -> HttpResponse:
        """A figure of a machine's speed or load. Its ETag changes with each sample or worker report."""
        agent, query = get_object_or_404(Agent, pk=pk), request.query_params
        with _figure_problems():
            return _once(request, machine_etag(name, agent, query), lambda: build_machine(name, agent, query))


class SimulationFigureView(APIView):
    """A figure of one simulation, as plotly JSON."""

    @extend_schema(
        parameters=[IF_NONE_MATCH, OpenApiParameter("theme", OpenApiTypes.STR, enum=["light", "dark"])],
        responses=FIGURE_REPLIES,
    )
    def get(self, request: Request, pk: int, name: str) -> HttpResponse:
        """A figure of the policies simulated so far. Its ETag changes with each of them."""
        row, query = get_object_or_404(Simulation, pk=pk), request.query_params
        with _figure_problems():
            return _once(request, simulation_etag(name, row, query), lambda: build_simulation(name, row, query))


class ReportView(APIView):
    """A job's report as one file."""

    @extend_schema(responses={(200, "text/html"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> HttpResponse:
        """Results, figures, findings, decisions and spec in one self-contained HTML document."""
        job = get_object_or_404(Job, pk=pk)
        reply = HttpResponse(render_report(job))
        reply["Content-Disposition"] = f"attachment; filename=job-{job.pk}.html"
        reply["Cache-Control"] = "private, no-store"
        return reply


class TraceView(APIView):
    """The timeline of a few iterations as a trace."""

    @extend_schema(
        parameters=list(WINDOW),
        responses={200: {"type": "object", "properties": {"traceEvents": {"type": "array"}}}},
    )
    def get(self, request: Request, pk: int) -> HttpResponse:
        """The timeline in Chrome's trace event format, for Perfetto or chrome://tracing."""
        with _figure_problems():
            return HttpResponse(
                build_trace(get_object_or_404(Job, pk=pk), request.query_params), content_type="application/json"
            )


@contextmanager
def _figure_problems() -> Iterator[None]:
    """Turn unknown figures and invalid options into client errors."""
    try:
        yield
    except UnknownFigure as error:
        raise Problem(404, str(error)) from None
    except QueryError as error:
        fault = FieldError(field=error.field, found=error.found, expected=error.expected)
        raise Problem(400, str(error), errors=[fault]) from None


def _once(request: Request, etag: str, build: Callable[[], bytes]) -> HttpResponse:
    """The figure, or 304 if the client has the current one."""
    if etag in _entity_tags(request.headers.get("If-None-Match", "")):
        return _figure(HttpResponse(status=304), etag)
    return _figure(HttpResponse(build()), etag)


def _figure(response: HttpResponse, etag: str) -> HttpResponse:
    response["Content-Type"] = "application/json"
    response["ETag"] = etag
    response["Cache-Control"] = "private, no-cache"
    return response


def _entity_tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in header.split(",")}
