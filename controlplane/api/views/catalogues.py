"""REST views of the policies and workloads, with the schema of their parameters."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.serializers.catalogues import PolicyRow, WorkloadRow
from controlplane.api.views.base import ApiView
from controlplane.policies import registry
from controlplane.protocol import catalogue


class PoliciesView(ApiView):
    """Policies."""

    @extend_schema(responses=PolicyRow(many=True))
    def get(self, request: Request) -> Response:
        """All policies by question, with their parameters and defaults."""
        return Response(PolicyRow(registry.catalogue(), many=True).data)


class WorkloadsView(ApiView):
    """Workloads."""

    @extend_schema(responses=WorkloadRow(many=True))
    def get(self, request: Request) -> Response:
        """All built-in workloads, with their data sets and options."""
        return Response(WorkloadRow(catalogue.describe(), many=True).data)
