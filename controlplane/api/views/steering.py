"""REST views of running jobs: policies, pause, resume, predictor and autopilot."""

from typing import Any

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import steering
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.jobs import (
    AlternativeDocument,
    AutopilotDocument,
    AutopilotRequest,
    JobDocument,
    PolicyDocument,
    PromotionRequest,
)
from controlplane.api.views.base import ApiView, user_of
from controlplane.jobs import autopilots, selectors
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role
from controlplane.runtime import alternatives, forecasts

IF_MATCH = OpenApiParameter(
    "If-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    required=True,
    description="The ETag of the version that was read.",
)
ETAG = OpenApiParameter("ETag", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 202])


class JobPolicyView(ApiView):
    """The four choices of a job: batching, barrier, placement and data."""

    write_role = Role.OPERATOR

    @extend_schema(parameters=[ETAG], responses={200: PolicyDocument})
    def get(self, request: Request, pk: int) -> Response:
        """The job's current policies, and the pending change."""
        return _policy(_job(pk), 200)

    @extend_schema(
        request={"application/json": {"type": "object", "additionalProperties": True}},
        parameters=[IF_MATCH, ETAG],
        responses={202: PolicyDocument, **problem_responses(409, 412, 422, 428, 503)},
    )
    @transaction.atomic
    def patch(self, request: Request, pk: int) -> Response:
        """Request other policies for a running job. The change is pending until its generation starts."""
        job = get_object_or_404(Job.objects.select_for_update(), pk=pk)
        if_match = request.headers.get("If-Match")
        steering.change_policy(job=job, document=request.data, if_match=if_match, user=user_of(request))
        return _policy(job, 202)


class JobAlternativesView(ApiView):
    """Other policies for a job."""

    @extend_schema(responses=AlternativeDocument(many=True))
    def get(self, request: Request, pk: int) -> Response:
        """Other policies with their predicted savings, best first. A request triggers a new simulation of the job."""
        job = _job(pk)
        forecasts.want(job.pk)
        return Response(AlternativeDocument(alternatives.job_alternatives(job), many=True).data)


class JobAutopilotView(ApiView):
    """The autopilot of a job."""

    write_role = Role.OPERATOR

    @extend_schema(responses=AutopilotDocument)
    def get(self, request: Request, pk: int) -> Response:
        """Its mode, its current proposal, and its latest decisions with their alternatives."""
        return Response(AutopilotDocument(autopilots.job_autopilot(_job(pk))).data)

    @extend_schema(request=AutopilotRequest, responses={202: AutopilotDocument, **problem_responses(409, 422, 503)})
    def patch(self, request: Request, pk: int) -> Response:
        """Request that it switches policies automatically (auto), or only proposes switches (suggest)."""
        job = _job(pk)
        steering.set_autopilot(job=job, document=request.data, user=user_of(request))
        return Response(AutopilotDocument(autopilots.job_autopilot(job)).data, status=202)


class JobPauseView(ApiView):
    """The pause of a job."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={202: JobDocument, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Request a pause: every worker stops at its next iteration boundary."""
        steering.pause_job(job=_job(pk), user=user_of(request))
        return Response(JobDocument(_job(pk)).data, status=202)


class JobResumeView(ApiView):
    """The end of a pause."""

    write_role = Role.OPERATOR

    @extend_schema(request=None, responses={202: JobDocument, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Request that a paused job resumes."""
        steering.resume_job(job=_job(pk), user=user_of(request))
        return Response(JobDocument(_job(pk)).data, status=202)


class JobPromoteView(ApiView):
    """The active predictor."""

    write_role = Role.OPERATOR

    @extend_schema(request=PromotionRequest, responses={202: JobDocument, **problem_responses(409, 422, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Promote a predictor: request that batch sizes are computed from its predictions."""
        steering.promote_predictor(job=_job(pk), document=request.data, user=user_of(request))
        return Response(JobDocument(_job(pk)).data, status=202)


def _policy(job: Job, status: int) -> Response:
    policy = steering.job_policy(job)
    return Response(PolicyDocument(policy).data, status=status, headers={"ETag": policy.etag})


def _job(pk: int) -> Any:
    return get_object_or_404(selectors.jobs(), pk=pk)
