"""Executes requests about job tokens, and about leases and exits of attached jobs."""

from typing import Any, Final

from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from controlplane.api.actions import NO_ANSWER
from controlplane.api.permissions import HasRole
from controlplane.api.problems import Problem
from controlplane.core.events import LauncherEnded
from controlplane.jobs import services, tokens
from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.runtime import presence
from controlplane.runtime.log import LogClosed, LogMissing, append_event, start_log
from controlplane.runtime.redis import shared

NO_PERSON: Final = (
    "this is a token of a job's ranks: it can only open their sockets, and read, stop and finish its own job. "
    "Use an API token here."
)


def issue_token(*, job: Job, actor: str, grace_s: float) -> str:
    """Create a token and return it in plain text.

    Raises:
        Problem: if the job is over, or agents start its ranks.
    """
    _check_live(job)
    if job.has_script:
        raise Problem(409, f"{job}: its agents pass its ranks a token that does not change; DELETE revokes it")
    return tokens.token_issue(job=job, actor=actor, grace_s=grace_s)


def refuse_job_token(secret: str) -> None:
    """Reject a job's token where a user's token is expected, with an explanation.

    Raises:
        AuthenticationFailed: if it is a job's token.
    """
    if tokens.is_job_token(secret):
        raise AuthenticationFailed(NO_PERSON)


class JobTokenShown(BaseAuthentication):
    """``Authorization: Bearer plj_...``: the launcher of the ranks of the job in the path."""

    def authenticate(self, request: Request) -> tuple[AnonymousUser, str] | None:
        """An anonymous user, and the token; None for a request without one of a job's tokens."""
        secret = bearer_of(request)
        if not tokens.is_job_token(secret):
            return None
        number = request.parser_context["kwargs"]["pk"]
        verdict = tokens.verdict_on(secret, number)
        if not verdict.good:
            raise AuthenticationFailed(f"{verdict.sentence}.")
        return AnonymousUser(), secret

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401 response."""
        return 'Bearer realm="paceline"'


class LaunchedOrRole(BasePermission):
    """Admits the job's token, for the methods that the view lists in ``launched``; otherwise users with the role."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Whether the token or the role allows the request; the refusal names the required role."""
        if isinstance(request.auth, str) and tokens.is_job_token(request.auth):
            self.message = NO_PERSON
            return request.method in view.launched
        role = HasRole()
        allowed = role.has_permission(request, view)
        self.message = role.message
        return allowed


def launcher_or_person(request: Request) -> str:
    """The actor of the request: a user by name, or the launcher that sent the job's token."""
    return request.user.get_username() or "launcher"


def bearer_of(request: Request) -> str:
    """The credential in the Authorization header; empty where there is none."""
    scheme, _, secret = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
    return secret.strip() if scheme.lower() in {"bearer", "token"} else ""


def finish_job(*, job: Job, actor: str, exit_code: int, reason: str) -> None:
    """Report to the engine that the launcher of an attached job has ended.

    Raises:
        Problem: if the job is over, agents start its processes, or Redis does not answer.
    """
    over = Problem(409, f"{job} is over ({job.state}): it ended before its launcher reported an exit code")
    if job.launch != "attached":
        raise Problem(409, f"{job} is native: Paceline's agents manage its processes; use actions/stop")
    if job.has_script:
        raise Problem(409, f"{job}: Paceline's agents start its script and report how it ends; use actions/stop")
    if job.is_over:
        raise over
    detail = {"exit_code": exit_code, "reason": reason[:500]}
    try:
        with transaction.atomic():  # a request that cannot be audited is not executed
            row = services.audit(actor=actor, action="job-finish", subject=str(job), detail=detail, job=job)
            if not job.cursors.exists():
                start_log(job.pk, stored_spec(job))
            row.entry = append_event(job.pk, LauncherEnded(actor=actor, exit_code=exit_code, reason=reason))
            row.save(update_fields=["entry"])
    except LogMissing:
        raise Problem(503, f"{job} was not finished: its log is being recovered; try again in a few seconds") from None
    except LogClosed:
        raise over from None
    except NO_ANSWER as error:
        raise Problem(503, f"{job} was not finished: Redis does not answer ({error}); try again") from error


def renew_lease(*, job: Job) -> None:
    """Record that the launcher of an attached job is alive.

    Raises:
        Problem: if the job is over, agents start its processes, or Redis does not answer.
    """
    if job.launch != "attached":
        raise Problem(409, f"{job} is native: Paceline's agents start its processes, so it has no launcher")
    if job.has_script:
        raise Problem(409, f"{job}: Paceline's agents start its script, so it has no other launcher")
    if job.is_over:
        raise Problem(409, f"{job} is over ({job.state})")
    try:
        presence.renew_lease(shared(), job.pk)
    except NO_ANSWER as error:
        raise Problem(503, f"{job}: Redis does not answer ({error}); try again") from error


def _check_live(job: Job) -> None:
    if job.is_over:
        raise Problem(409, f"{job} is over ({job.state}): its tokens expired with it; submit a new job")
