"""REST views of a job's log lines: filtered and paged, or as a file."""

from itertools import chain
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.pagination import Pages
from controlplane.api.problems import FieldError, Problem
from controlplane.api.serializers.records import LogLineRow
from controlplane.api.views.records import OfOneJob
from controlplane.jobs.streaming import LINES_AT_ONCE, streamed_lines
from controlplane.protocol.text import printable
from controlplane.telemetry.models import LogLine
from controlplane.telemetry.selectors import LEVELS, dropped_lines, job_lines, process_of


class LogFilter(django_filters.FilterSet):
    """``?level=warning&process=w0&text=loss&since=2026-03-02T12:00:00Z``."""

    level = django_filters.ChoiceFilter(
        choices=[(level, level) for level in LEVELS], method="of_level", help_text="Minimum level."
    )
    process = django_filters.CharFilter(method="of_process", max_length=8, help_text="w0, or s1 for a server.")
    text = django_filters.CharFilter(field_name="text", lookup_expr="icontains", max_length=200)
    since = django_filters.IsoDateTimeFilter(field_name="at", lookup_expr="gte")

    class Meta:
        model = LogLine
        fields = ()

    def of_level(self, rows: QuerySet[LogLine], name: str, value: str) -> QuerySet[LogLine]:
        """Lines of that level and above."""
        return rows.filter(level__in=LEVELS[LEVELS.index(value) :])

    def of_process(self, rows: QuerySet[LogLine], name: str, value: str) -> QuerySet[LogLine]:
        """Lines of one worker or server."""
        found = process_of(value)
        if found is None:
            fault = FieldError(field="process", found=value, expected="w or s with a number, such as w0")
            raise Problem(400, str(fault), errors=[fault])
        return rows.filter(role=found[0], index=found[1])


class LinePages(Pages):
    """Pages of log lines, which also say how many older lines are gone."""

    def get_paginated_response(self, data: Any) -> Response:
        """The page, and the number of dropped lines."""
        reply = super().get_paginated_response(data)
        reply.data["dropped"] = dropped_lines(int(self.request.parser_context["kwargs"]["pk"]))
        return reply

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema of a page."""
        found: dict[str, Any] = super().get_paginated_response_schema(schema)
        text = "How many of the job's oldest lines were dropped: a job has a limited number of stored lines."
        found["properties"]["dropped"] = {"type": "integer", "minimum": 0, "description": text}
        found["required"] = [*found.get("required", []), "dropped"]
        return found


class LogsView(OfOneJob):
    """Log lines of the job's processes, newest first."""

    pagination_class = LinePages
    serializer_class = LogLineRow
    filterset_class = LogFilter
    queryset = LogLine.objects.none()
    rows_of = staticmethod(job_lines)


class LogsTextView(OfOneJob):
    """The same as a file."""

    pagination_class = None

    serializer_class = LogLineRow
    filterset_class = LogFilter
    queryset = LogLine.objects.none()
    rows_of = staticmethod(job_lines)

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    def get(self, request: Request, *args: Any, **kwargs: Any) -> StreamingHttpResponse:
        """All matching log lines as plain text, oldest first."""
        lines = self.filter_queryset(self.get_queryset()).order_by("id").iterator(LINES_AT_ONCE)
        texts = (
            f"{line.at.isoformat(timespec='seconds')} {line.process} {line.level} {printable(line.text)}\n"
            for line in lines
        )
        dropped = dropped_lines(self.kwargs["pk"])
        first = [f"{dropped} older lines were dropped\n"] if dropped else []
        body = streamed_lines(request._request, chain(first, texts))
        response = StreamingHttpResponse(body, content_type="text/plain; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="job-{self.kwargs["pk"]}.log"'
        return response
