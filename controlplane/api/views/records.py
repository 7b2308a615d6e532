"""REST views of a job's measurements, decisions, flags, events and placement."""

from collections.abc import Iterator, Sequence
from typing import Any

import django_filters
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.filters import CountFilter, StrictFilters
from controlplane.api.problems import Problem
from controlplane.api.serializers.operating import FlagRow
from controlplane.api.serializers.records import (
    DecisionRow,
    EventRow,
    MeasurementsQuery,
    MetricsQuery,
    MetricsReply,
    PlacementReply,
)
from controlplane.api.views.base import ApiListView, ApiView
from controlplane.jobs import selectors
from controlplane.jobs.models import Decision, Flag, Job
from controlplane.jobs.streaming import streamed_lines
from controlplane.telemetry.export import HEADING, measurements
from controlplane.telemetry.models import RawEvent
from controlplane.telemetry.selectors import job_events, series


class MetricsView(ApiView):
    """Series of measurements."""

    query_serializer = MetricsQuery

    @extend_schema(parameters=[MetricsQuery], responses=MetricsReply)
    def get(self, request: Request, pk: int) -> Response:
        """Measurements by iteration, down-sampled to ``points`` per series. Minima and maxima are kept."""
        job = _job(pk)
        query = MetricsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        params = query.validated_data
        found = series(
            job_id=job.pk,
            metrics=dict.fromkeys(params["metric"]),
            ranks=params["worker"],
            since=params["since"],
            points=params["points"],
        )
        return Response(MetricsReply({"job": job.pk, "since": params["since"], "series": found}).data)


class MeasurementsView(ApiView):
    """The data of charts, before down-sampling."""

    query_serializer = MeasurementsQuery

    @extend_schema(parameters=[MeasurementsQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> StreamingHttpResponse:
        """Every report of every worker as CSV, not down-sampled. Pruned jobs have means over 10 iterations."""
        job, query = _job(pk), MeasurementsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        lines = _lines(job.pk, query.validated_data["worker"])
        reply = StreamingHttpResponse(streamed_lines(request._request, lines), content_type="text/csv; charset=utf-8")
        reply["Content-Disposition"] = f'attachment; filename="job-{job.pk}-measurements.csv"'
        return reply


class OfOneJob(ApiListView[Any]):
    """A list that belongs to the job in the path."""

    filter_backends = (StrictFilters,)

    def get_queryset(self) -> Any:
        """The rows of that job; 404 if there is none."""
        job = _job(self.kwargs["pk"])
        return type(self).rows_of(job.pk)

    @staticmethod
    def rows_of(job_id: int) -> Any:
        """The rows of a job."""
        raise NotImplementedError


class DecisionFilter(django_filters.FilterSet):
    """``?kind=set-shares&iteration_min=100``."""

    kind = django_filters.CharFilter(max_length=30)
    iteration_min = CountFilter(field_name="iteration", lookup_expr="gte")

    class Meta:
        model = Decision
        fields = ("kind",)


class DecisionsView(OfOneJob):
    """Decisions of the engine with their reasons, newest first."""

    serializer_class = DecisionRow
    filterset_class = DecisionFilter
    queryset = Decision.objects.none()
    rows_of = staticmethod(selectors.job_decisions)


class FlagFilter(django_filters.FilterSet):
    """``?open=true``."""

    rank = CountFilter()
    open = django_filters.BooleanFilter(field_name="closed_at", lookup_expr="isnull")

    class Meta:
        model = Flag
        fields = ("rank", "kind")


class FlagsView(OfOneJob):
    """Straggler findings, newest first."""

    serializer_class = FlagRow
    filterset_class = FlagFilter
    queryset = Flag.objects.none()
    rows_of = staticmethod(selectors.job_flags)


class EventFilter(django_filters.FilterSet):
    """``?kind=worker-heard``, or the one with ``?stream_id=``, which a decision names as its cause."""

    kind = django_filters.CharFilter(max_length=30)
    stream_id = django_filters.CharFilter(max_length=40)

    class Meta:
        model = RawEvent
        fields = ("kind", "stream_id")


class EventsView(OfOneJob):
    """The job's event log, newest first."""

    serializer_class = EventRow
    filterset_class = EventFilter
    queryset = RawEvent.objects.none()
    rows_of = staticmethod(job_events)


class PlacementView(ApiView):
    """The placement of the parameters."""

    @extend_schema(responses=PlacementReply)
    def get(self, request: Request, pk: int) -> Response:
        """The current placement: which server holds which block."""
        decision = selectors.job_placement(_job(pk).pk)
        if decision is None:
            raise Problem(404, f"job {pk} has no placement yet: not all of its servers have connected")
        return Response(PlacementReply(_placement(decision)).data)


def _placement(decision: Decision) -> dict[str, Any]:
    blocks = decision.payload["blocks"]
    elements: dict[str, int] = {}
    for block in blocks:
        server = str(block["server"])
        elements[server] = elements.get(server, 0) + block["stop"] - block["start"]
    fields = {key: decision.payload[key] for key in ("version", "policy")}
    return {
        "job": decision.job_id,
        "at": decision.at,
        "reason": decision.reason,
        "blocks": blocks,
        "elements": elements,
        **fields,
    }


def _job(pk: int) -> Job:
    return get_object_or_404(selectors.jobs(), pk=pk)


def _lines(job_id: int, ranks: Sequence[int]) -> Iterator[str]:
    yield _line(HEADING)
    yield from map(_line, measurements(job_id, ranks))


def _line(values: Sequence[Any]) -> str:
    """A CSV line of numbers and names, which need no quotes."""
    return ",".join("" if value is None else str(value) for value in values) + "\r\n"
