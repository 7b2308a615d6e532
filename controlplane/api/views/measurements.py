"""All measurements of a job, as a file."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.api.serializers.history import MeasurementsQuery
from controlplane.jobs.models import Job
from controlplane.jobs.streaming import streamed_lines
from controlplane.telemetry.export import HEADING, measurements


class MeasurementsView(APIView):
    """The data of charts, before thinning."""

    @extend_schema(parameters=[MeasurementsQuery], responses={(200, "text/csv"): OpenApiTypes.STR})
    def get(self, request: Request, pk: int) -> StreamingHttpResponse:
        """Every report of every worker as CSV, not down-sampled. Where detail was pruned: means over 10 iterations."""
        job, query = get_object_or_404(Job, pk=pk), MeasurementsQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        lines = _lines(job.pk, query.validated_data["worker"])
        reply = StreamingHttpResponse(streamed_lines(request._request, lines), content_type="text/csv; charset=utf-8")
        reply["Content-Disposition"] = f'attachment; filename="job-{job.pk}-measurements.csv"'
        return reply


def _lines(job_id: int, ranks: Sequence[int]) -> Iterator[str]:
    yield _line(HEADING)
    yield from map(_line, measurements(job_id, ranks))


def _line(values: Sequence[Any]) -> str:
    """Numbers and names only: nothing that would need quotes."""
    return ",".join("" if value is None else str(value) for value in values) + "\r\n"
