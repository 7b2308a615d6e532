"""REST views of attached jobs: tokens, exit and lease."""

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api import attached
from controlplane.api.authentication import ApiToken
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.attached import JobTokens, LauncherEnd, NewJobToken, TokenGrace
from controlplane.api.serializers.jobs import JobDocument
from controlplane.api.views.base import ApiView, user_of
from controlplane.jobs import selectors, tokens
from controlplane.jobs.models import Job
from controlplane.jobs.roles import Role


class JobTokenView(ApiView):
    """Tokens of a job, for its ranks and its launcher."""

    write_role = Role.OPERATOR

    @extend_schema(responses=JobTokens)
    def get(self, request: Request, pk: int) -> Response:
        """The job's valid tokens, without their secrets."""
        job = _job(pk)
        return Response(JobTokens({"job": job.pk, "tokens": tokens.live_tokens(job)}).data)

    @extend_schema(request=TokenGrace, responses={201: NewJobToken, **problem_responses(409)})
    def post(self, request: Request, pk: int) -> Response:
        """Create a token. It is shown only in this reply. Earlier tokens expire after ``grace_s``."""
        serializer = TokenGrace(data=request.data)
        serializer.is_valid(raise_exception=True)
        grace_s = serializer.validated_data["grace_s"]
        with transaction.atomic():
            token = attached.issue_token(job=_job(pk), actor=user_of(request).get_username(), grace_s=grace_s)
        return Response(NewJobToken({"job": pk, "token": token, "grace_s": grace_s}).data, status=201)

    @extend_schema(request=None, responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Revoke all tokens of the job immediately. Its ranks keep training, without reporting."""
        with transaction.atomic():
            tokens.tokens_revoke(job=_job(pk), actor=user_of(request).get_username())
        return Response(status=204)


class JobFinishView(ApiView):
    """The end of an attached job, by its launcher's exit code."""

    write_role = Role.OPERATOR
    authentication_classes = (attached.JobTokenShown, ApiToken, SessionAuthentication)
    permission_classes = (attached.LaunchedOrRole,)
    launched = ("POST",)

    @extend_schema(request=LauncherEnd, responses={202: JobDocument, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Report the exit of the launcher: 0 means that the job succeeded, anything else that it failed.

        Requires the job's own token or the role operator.
        """
        serializer = LauncherEnd(data=request.data)
        serializer.is_valid(raise_exception=True)
        actor = attached.launcher_or_person(request)
        attached.finish_job(job=_job(pk), actor=actor, **serializer.validated_data)
        return Response(JobDocument(_job(pk)).data, status=202)


class JobLeaseView(ApiView):
    """The lease of an attached job, which its launcher renews."""

    write_role = Role.OPERATOR
    authentication_classes = JobFinishView.authentication_classes
    permission_classes = JobFinishView.permission_classes
    launched = ("POST",)

    @extend_schema(request=None, responses={204: None, **problem_responses(409, 503)})
    def post(self, request: Request, pk: int) -> Response:
        """Renew the lease: a job with ``lease_s`` fails after this time without a renewal and without connected ranks.

        Requires the job's own token or the role operator.
        """
        attached.renew_lease(job=_job(pk))
        return Response(status=204)


def _job(pk: int) -> Job:
    return get_object_or_404(selectors.jobs(), pk=pk)
