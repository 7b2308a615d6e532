"""REST views of operating machines: cordon, drain, drain preview, labels and maintenance windows."""

from typing import ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

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
from controlplane.api.views.base import ApiView, user_of
from controlplane.fleet import selectors
from controlplane.fleet.models import Agent, MaintenanceWindow
from controlplane.fleet.windows import planned
from controlplane.jobs.roles import Role
from controlplane.runtime.draining import preview_of


class SchedulingView(ApiView):
    """Whether a machine takes new processes."""

    write_role = Role.OPERATOR
    to: ClassVar[Agent.Scheduling]

    @extend_schema(request=SchedulingReason, responses={200: AgentRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Change the scheduling of the machine, with a reason for its page."""
        serializer = SchedulingReason(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent = get_object_or_404(Agent, pk=pk)
        actor = user_of(request).get_username()
        schedule_machine(agent=agent, to=self.to, actor=actor, **serializer.validated_data)
        return Response(AgentRow(selectors.agents().get(pk=pk)).data)


class AgentCordonView(SchedulingView):
    """No new processes; running processes continue."""

    to = Agent.Scheduling.CORDONED


class AgentUncordonView(SchedulingView):
    """New processes again; ends a drain."""

    to = Agent.Scheduling.OPEN


class AgentDrainView(SchedulingView):
    """No new processes; running processes move to other machines."""

    to = Agent.Scheduling.DRAINING


class AgentDrainPreviewView(ApiView):
    """The preview of a drain."""

    @extend_schema(responses=DrainPreview)
    def get(self, request: Request, pk: int) -> Response:
        """Where each process of the machine would move if it was drained now, and the expected duration."""
        return Response(DrainPreview(preview_of(get_object_or_404(Agent, pk=pk))).data)


class AgentLabelsView(ApiView):
    """Labels that are added to a machine's own."""

    @extend_schema(request=LabelsRequest, responses={200: AgentRow, **problem_responses(409)})
    def put(self, request: Request, pk: int) -> Response:
        """Replace the additional labels of the machine; those of its enrolment token are not changed. Admins only."""
        serializer = LabelsRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent = get_object_or_404(Agent, pk=pk)
        label_machine(agent=agent, labels=serializer.validated_data["labels"], actor=user_of(request).get_username())
        return Response(AgentRow(selectors.agents().get(pk=pk)).data)


class AgentWindowsView(ApiView):
    """Maintenance windows of a machine."""

    write_role = Role.OPERATOR

    @extend_schema(responses=WindowRow(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """Windows that have not ended, next first."""
        return Response(WindowRow(planned(get_object_or_404(Agent, pk=pk)), many=True).data)

    @extend_schema(request=WindowRequest, responses={201: WindowRow, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Plan a window: the machine is cordoned or drained before it, and uncordoned at its end."""
        serializer = WindowRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        agent, actor = get_object_or_404(Agent, pk=pk), user_of(request).get_username()
        row = plan_window(agent=agent, actor=actor, **serializer.validated_data)
        return Response(WindowRow(row).data, status=201)


class AgentWindowView(ApiView):
    """One maintenance window."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={204: None, **problem_responses(404, 409)})
    def delete(self, request: Request, pk: int, window: int) -> Response:
        """Cancel a window, or end the current one, which uncordons the machine."""
        row = get_object_or_404(MaintenanceWindow, pk=window, agent=get_object_or_404(Agent, pk=pk))
        cancel_window(window=row, actor=user_of(request).get_username())
        return Response(status=204)
