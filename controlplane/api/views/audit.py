"""REST view of the audit log for other systems: JSON lines in the order of the hash chain."""

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request

from controlplane.api.views.base import ApiView
from controlplane.jobs.roles import Role
from controlplane.people.audit_chain import exported, line_of

MOST = 10_000


class AuditQuery(serializers.Serializer[Any]):
    """Start and number of entries."""

    since = serializers.IntegerField(
        min_value=0, max_value=2**63 - 1, default=0, help_text="The `sequence` after which to continue."
    )
    limit = serializers.IntegerField(min_value=1, max_value=MOST, default=1_000)


class AuditView(ApiView):
    """Sealed entries, read-only."""

    read_role = Role.ADMIN
    query_serializer = AuditQuery

    @extend_schema(parameters=[AuditQuery], responses={(200, "application/x-ndjson"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """The audit log, oldest first, one JSON document per line.

        Pass the last `sequence` as `since` to continue. New entries appear within seconds.
        """
        query = AuditQuery(data=request.query_params)
        query.is_valid(raise_exception=True)
        lines = [
            line_of(each) + "\n" for each in exported(query.validated_data["since"], query.validated_data["limit"])
        ]
        return HttpResponse("".join(lines), content_type="application/x-ndjson")
