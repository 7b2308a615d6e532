"""What requests do about attached jobs: their tokens, and who may show one."""

from typing import Final

from rest_framework.exceptions import AuthenticationFailed

from controlplane.api.problems import Problem
from controlplane.jobs import tokens
from controlplane.jobs.models import Job

NO_PERSON: Final = (
    "this is the token of a job's ranks: it opens their sockets, and actions/finish of its job, alone; elsewhere show "
    "an API token of yours."
)


def issue_token(*, job: Job, actor: str, grace_s: float) -> str:
    """A new token, in clear for this once.

    Raises:
        Problem: if the job is native, or over.
    """
    _check_live(job)
    try:
        return tokens.token_issue(job=job, actor=actor, grace_s=grace_s)
    except tokens.NotAttached as refusal:
        raise Problem(409, str(refusal)) from None


def revoke_tokens(*, job: Job, actor: str) -> None:
    """End all of them at once.

    Raises:
        Problem: if the job is native.
    """
    try:
        tokens.tokens_revoke(job=job, actor=actor)
    except tokens.NotAttached as refusal:
        raise Problem(409, str(refusal)) from None


def refuse_job_token(secret: str) -> None:
    """Say what a job's token is for, where a person's is expected.

    Raises:
        AuthenticationFailed: if it is one.
    """
    if tokens.is_job_token(secret):
        raise AuthenticationFailed(NO_PERSON)


def _check_live(job: Job) -> None:
    if job.is_over:
        raise Problem(409, f"{job} is over ({job.state}): its tokens ended with it; submit a new one")
