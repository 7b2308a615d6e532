"""Operating machines: cordon, drain and what a drain would do; labels and maintenance windows."""

from typing import ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.api.machines import cancel_window, label_machine, plan_window, schedule_machine
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.fleet import AgentRow
from controlplane.api.serializers.machines import (
    DrainPreview,
    LabelsRequest,
    SchedulingReason,
    WindowRequest,
    WindowRow,
)
from controlplane.api.views.base import user_of
from controlplane.fleet import selectors
from controlplane.fleet.models import Agent, MaintenanceWindow
from controlplane.fleet.windows import planned
from controlplane.jobs.roles import Role
from controlplane.runtime.draining import preview_of


class SchedulingView(APIView):
    """Whether a machine takes new processes."""

    write_role = Role.OPERATOR
    to: ClassVar[Agent.Scheduling]

    @extend_schema(request=SchedulingReason, responses={200: AgentRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Request it, with a reason that the machine's page shows."""
        serializer = SchedulingReason(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent = get_object_or_404(Agent, pk=pk)
        actor = user_of(request).get_username()
        schedule_machine(agent=agent, to=self.to, actor=actor, **serializer.validated_data)
        return Response(AgentRow(selectors.agents().get(pk=pk)).data)


class AgentCordonView(SchedulingView):
    """No new processes; those that run continue."""

    to = Agent.Scheduling.CORDONED


class AgentUncordonView(SchedulingView):
    """New processes again; ends a drain."""

    to = Agent.Scheduling.OPEN


class AgentDrainView(SchedulingView):
    """No new processes; those that run move to other machines."""

    to = Agent.Scheduling.DRAINING


class AgentDrainPreviewView(APIView):
    """What a drain would do."""

    @extend_schema(responses=DrainPreview)
    def get(self, request: Request, pk: int) -> Response:
        """Where each process of the machine would go if it was drained now, and how long that is expected to take."""
        return Response(DrainPreview(preview_of(get_object_or_404(Agent, pk=pk))).data)


class AgentLabelsView(APIView):
    """Labels that are added to a machine's own."""

    @extend_schema(request=LabelsRequest, responses={200: AgentRow, **problem_responses(409)})
    def put(self, request: Request, pk: int) -> Response:
        """Have exactly these labels beside those of the enrolment token, which stay. Admins only."""
        serializer = LabelsRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent = get_object_or_404(Agent, pk=pk)
        label_machine(agent=agent, labels=serializer.validated_data["labels"], actor=user_of(request).get_username())
        return Response(AgentRow(selectors.agents().get(pk=pk)).data)


class AgentWindowsView(APIView):
    """Maintenance windows of a machine."""

    write_role = Role.OPERATOR

    @extend_schema(responses=WindowRow(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """Windows that have not ended, the next first."""
        return Response(WindowRow(planned(get_object_or_404(Agent, pk=pk)), many=True).data)

    @extend_schema(request=WindowRequest, responses={201: WindowRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Plan a window: the machine is cordoned or drained before it, and opened at its end."""
        serializer = WindowRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent, actor = get_object_or_404(Agent, pk=pk), user_of(request).get_username()
        row = plan_window(agent=agent, actor=actor, **serializer.validated_data)
        return Response(WindowRow(row).data, status=201)


class AgentWindowView(APIView):
    """One maintenance window."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={204: None, **problem_responses(404, 409)})
    def delete(self, request: Request, pk: int, window: int) -> Response:
        """Cancel a window, or end one that is on: a machine that it closed is opened."""
        row = get_object_or_404(MaintenanceWindow, pk=window, agent=get_object_or_404(Agent, pk=pk))
        cancel_window(window=row, actor=user_of(request).get_username())
        return Response(status=204)
