"""REST views of machine tests."""

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.machine_tests import request_test
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.machine_tests import MachineTestRow, TestRequest
from controlplane.api.views.base import ApiView, user_of
from controlplane.fleet.machine_classes import peers_results
from controlplane.fleet.machine_tests import preflights_of
from controlplane.fleet.models import Agent
from controlplane.jobs.roles import Role
from controlplane.jobs.viewing import visible


class AgentTestView(ApiView):
    """A pre-flight test of a machine."""

    write_role = Role.OPERATOR

    @extend_schema(request=TestRequest, responses={202: MachineTestRow, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Measure compute, memory and links to machines with servers; it takes up to a minute."""
        serializer = TestRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent = get_object_or_404(Agent, pk=pk)
        row = request_test(agent=agent, actor=user_of(request).get_username(), **serializer.validated_data)
        return Response(MachineTestRow(row).data, status=202)


class AgentTestsView(ApiView):
    """Tests of a machine."""

    @extend_schema(responses=MachineTestRow(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """The latest tests, newest first, each with the median of the machine's class."""
        agent = get_object_or_404(Agent, pk=pk)
        rows = preflights_of(agent).select_related("agent")
        peers = peers_results(agent, visible(Agent.objects.all())) if rows else []
        return Response(MachineTestRow(rows, many=True, context={"peers": peers}).data)
