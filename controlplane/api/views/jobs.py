"""REST views of jobs and their processes."""

import re
from typing import Any, ClassVar

import django_filters
from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from controlplane.api import actions, attached
from controlplane.api.authentication import ApiToken
from controlplane.api.filters import StrictFilters, StrictOrdering
from controlplane.api.problems import FieldError, Problem
from controlplane.api.schema import IDEMPOTENCY_KEY, job_spec_bodies, problem_responses
from controlplane.api.serializers.jobs import (
    CheckDocument,
    JobDocument,
    JobRow,
    PriorityRequest,
    ProcessRow,
    QueueMove,
    StopReason,
    SubmittedJob,
)
from controlplane.api.views.base import ApiDetailView, ApiListView, ApiView, user_of
from controlplane.core.states import JobState, ProcessState
from controlplane.fleet.models import Agent
from controlplane.jobs import selectors
from controlplane.jobs.models import Job, Process
from controlplane.jobs.roles import Role
from controlplane.protocol.orders import Role as ProcessRole
from controlplane.protocol.spec import spec_document

TEAM = OpenApiParameter(
    "team", OpenApiTypes.STR, description="The team that owns the job; default: the first that you joined, if any."
)
KEY = re.compile(r"[!-~]{1,200}")


class JobFilter(django_filters.FilterSet):
    """``?state=running&state=starting&name=digits``."""

    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in JobState])
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=100)
    team = django_filters.CharFilter(field_name="team__name", max_length=60)
    tag = django_filters.CharFilter(field_name="tags__name", max_length=40)

    class Meta:
        model = Job
        fields = ("state", "name", "team", "tag")


class JobsView(ApiListView[Job]):
    """List jobs."""

    takes = {"POST": (TEAM.name,)}
    write_role = Role.OPERATOR
    serializer_class = JobRow
    filterset_class = JobFilter
    filter_backends = (StrictFilters, StrictOrdering)
    ordering_fields = ("id", "name", "state", "priority", "created_at", "finished_at", "accuracy", "waiting_s")
    queryset = Job.objects.none()
    writes_for_teams = True

    def get_queryset(self) -> Any:
        """Those that the user may see."""
        return selectors.submitted_jobs()

    @extend_schema(
        request=job_spec_bodies(),
        parameters=[
            IDEMPOTENCY_KEY,
            TEAM,
            OpenApiParameter("Location", OpenApiTypes.URI, OpenApiParameter.HEADER, response=[202]),
        ],
        responses={202: SubmittedJob, **problem_responses(409, 422)},
    )
    def post(self, request: Request) -> Response:
        """Submit a job. It starts when enough slots are free; until then its ``waiting`` field has the reason."""
        key = _idempotency_key(request)
        document = request.data  # parsed before the transaction
        with transaction.atomic():
            accepted = actions.submit_job(
                document=document, user=user_of(request), idempotency_key=key, team=_team(request)
            )
        row = _job(accepted.job.pk)
        location = reverse("api:job", args=[row.pk], request=request)
        return Response(
            SubmittedJob(row, context={"token": accepted.token}).data, status=202, headers={"Location": location}
        )


class JobCheckView(ApiView):
    """A job that is not submitted yet."""

    takes = {"POST": (TEAM.name,)}
    write_role = Role.OPERATOR

    writes_for_teams = True

    @extend_schema(
        request=job_spec_bodies(), parameters=[TEAM], responses={200: CheckDocument, **problem_responses(409, 422)}
    )
    def post(self, request: Request) -> Response:
        """Validate a spec without submitting it. The response has all defaults and what the job would wait for."""
        spec, finding, outcome = actions.check_job(document=request.data, user=user_of(request), team=_team(request))
        found = {"spec": spec_document(spec), "finding": f"{spec.name} {finding}", "outcome": outcome}
        return Response(CheckDocument(found).data)


class JobView(ApiDetailView[Job]):
    """One job, with its state and, while it is queued, its position and the reason."""

    write_role = Role.OPERATOR
    authentication_classes = (attached.JobTokenShown, ApiToken, SessionAuthentication)
    permission_classes = (attached.LaunchedOrRole,)
    launched = ("GET", "HEAD")
    serializer_class = JobDocument
    queryset = Job.objects.select_related("submitted_by", "team")

    @extend_schema(request=PriorityRequest, responses={200: JobDocument, **problem_responses(409)})
    def patch(self, request: Request, pk: int) -> Response:
        """Change the priority of a queued job."""
        actions.prioritise_job(job=_job(pk), document=request.data, user=user_of(request))
        return Response(JobDocument(_job(pk)).data)


class JobStopView(ApiView):
    """Stopping a job."""

    write_role = Role.OPERATOR
    authentication_classes = (attached.JobTokenShown, ApiToken, SessionAuthentication)
    permission_classes = (attached.LaunchedOrRole,)
    launched = ("POST",)

    @extend_schema(request=StopReason, responses={202: JobDocument, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Request that a job stops. A job that has no slots yet is cancelled.

        Requires the role operator or the job's own token, for a launcher that is terminated itself.
        """
        serializer = StopReason(data=request.data)
        serializer.is_valid(raise_exception=True)
        actor = attached.launcher_or_person(request)
        actions.stop_job(job=_job(pk), actor=actor, **serializer.validated_data)
        return Response(JobDocument(_job(pk)).data, status=202)


class ProcessFilter(django_filters.FilterSet):
    """``?state=ready&agent=3&job=7``."""

    state = django_filters.MultipleChoiceFilter(choices=[(state.value, state.value) for state in ProcessState])
    agent = django_filters.ModelChoiceFilter(queryset=Agent.objects.all())
    job = django_filters.ModelChoiceFilter(queryset=Job.objects.all())

    class Meta:
        model = Process
        fields = ("state", "agent", "job")


class JobProcessesView(ApiListView[Process]):
    """Every instance of the job's workers and servers."""

    serializer_class = ProcessRow
    filterset_class = ProcessFilter
    filter_backends = (StrictFilters,)
    queryset = Process.objects.none()

    def get_queryset(self) -> Any:
        """Those of the job in the path."""
        return selectors.job_processes(_job(self.kwargs["pk"]).pk)


class WorkersView(ApiListView[Process]):
    """Workers of all jobs."""

    serializer_class = ProcessRow
    filterset_class = ProcessFilter
    filter_backends = (StrictFilters,)
    queryset = Process.objects.none()
    role: ClassVar[ProcessRole] = "worker"

    def get_queryset(self) -> Any:
        """Those of jobs that the user may see."""
        return selectors.processes(self.role)


class ServersView(WorkersView):
    """Servers of all jobs."""

    role = "server"


class JobMoveView(ApiView):
    """The order of the queue."""

    write_role = Role.OPERATOR

    @extend_schema(request=QueueMove, responses={200: JobDocument, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Move a queued job before another one, or to the end. It takes the other job's priority."""
        serializer = QueueMove(data=request.data)
        serializer.is_valid(raise_exception=True)
        before = serializer.validated_data["before"]
        if before is not None and not selectors.jobs().filter(pk=before).exists():
            raise Problem(409, f"job {before} does not exist; expected a queued job, or null for the end of the queue")
        actions.move_job(job=_job(pk), before=before, user=user_of(request))
        return Response(JobDocument(_job(pk)).data)


def _job(pk: int) -> Job:
    return get_object_or_404(Job.objects.select_related("submitted_by", "team"), pk=pk)


def _team(request: Request) -> str | None:
    return request.query_params.get("team") or None


def _idempotency_key(request: Request) -> str | None:
    key: str | None = request.headers.get("Idempotency-Key")
    if key is not None and not KEY.fullmatch(key):
        fault = FieldError(
            field="Idempotency-Key", found=key, expected="1 to 200 printable ASCII characters, no spaces"
        )
        raise Problem(400, f"Idempotency-Key: expected {fault.expected}", errors=[fault])
    return key
