"""REST views of operators' requests about a worker, server or flag of a job."""

from collections.abc import Callable
from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import operating
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.operating import FlagRow, MuteRequest, RequestRow
from controlplane.api.views.base import ApiView, user_of
from controlplane.jobs.models import Flag, Job
from controlplane.jobs.requests import job_requests
from controlplane.jobs.roles import Role

ACCEPTED: dict[Any, Any] = {202: RequestRow, **problem_responses(409, 503)}


class JobRequestsView(ApiView):
    """Users' requests to a job's engine."""

    @extend_schema(responses=RequestRow(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """Recent requests, newest first: pending, in progress, done, or declined with the reason."""
        return Response(RequestRow(job_requests(get_object_or_404(Job, pk=pk)), many=True).data)


class WorkerView(ApiView):
    """A request about one worker."""

    write_role = Role.OPERATOR
    send_request: ClassVar[Callable[..., Any]]

    @extend_schema(request=None, responses=ACCEPTED)
    def post(self, request: Request, pk: int, rank: int) -> Response:
        """Send the request. The engine's response appears in the job's requests."""
        job = get_object_or_404(Job, pk=pk)
        return Response(RequestRow(type(self).send_request(job=job, rank=rank, user=user_of(request))).data, status=202)


class WorkerExcludeView(WorkerView):
    """Exclusion of a worker: no more shares, and the end of its process, until it is included."""

    send_request = staticmethod(operating.exclude_worker)


class WorkerIncludeView(WorkerView):
    """Inclusion of a worker."""

    send_request = staticmethod(operating.include_worker)


class WorkerDrainView(WorkerView):
    """Departure of a worker after its current iteration."""

    send_request = staticmethod(operating.drain_worker)


class ServerAddView(ApiView):
    """Addition of a server."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses=ACCEPTED)
    def post(self, request: Request, pk: int) -> Response:
        """Request one more server. The placement policy decides which blocks move to it."""
        job = get_object_or_404(Job, pk=pk)
        return Response(RequestRow(operating.add_server(job=job, user=user_of(request))).data, status=202)


class ServerDrainView(ApiView):
    """Removal of a server."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses=ACCEPTED)
    def post(self, request: Request, pk: int, index: int) -> Response:
        """Request that a server moves its blocks to the others and exits."""
        job = get_object_or_404(Job, pk=pk)
        accepted = operating.drain_server(job=job, index=index, user=user_of(request))
        return Response(RequestRow(accepted).data, status=202)


class FlagAcknowledgeView(ApiView):
    """Acknowledgement of a flag."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses=FlagRow)
    def post(self, request: Request, pk: int, key: str) -> Response:
        """Acknowledge a finding."""
        flag = get_object_or_404(Flag, job=get_object_or_404(Job, pk=pk), key=key)
        operating.acknowledge_flag(flag=flag, user=user_of(request))
        return Response(FlagRow(flag).data)


class FlagMuteView(ApiView):
    """Mute of a flag: no notifications of such findings for a while."""

    write_role = Role.OPERATOR

    @extend_schema(request=MuteRequest, responses=FlagRow)
    def post(self, request: Request, pk: int, key: str) -> Response:
        """Mute a finding and later ones of its kind and subject for this many minutes; 0 unmutes."""
        flag = get_object_or_404(Flag, job=get_object_or_404(Job, pk=pk), key=key)
        serializer = MuteRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        operating.mute_flag(flag=flag, minutes=serializer.validated_data["minutes"], user=user_of(request))
        return Response(FlagRow(flag).data)
