"""Tokens of jobs: credentials of an attached job's ranks, and of the launcher of a job's ranks or agents.

A token is valid for one job, for any number of ranks and their restarts, until it is revoked, another replaces it,
or the job is over. Only its hash is stored; it is random and long, so that the hash needs no salt.
"""

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.core.states import JOB_OVER
from controlplane.jobs.models import Job, JobToken
from controlplane.jobs.sealing import unseal
from controlplane.jobs.services import audit
from controlplane.protocol.keys import JOB_PREFIX, ranks_token, secret_digest

MAX_GRACE_S: Final = 3600

ANOTHER: Final = "POST /api/v1/jobs/{job}/token makes another one, and so does paceline run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The validity of a token for a job."""

    good: bool
    job_over: bool = False
    sentence: str = ""
    """Why the token is refused; empty if it is valid."""


def is_job_token(secret: str) -> bool:
    """Whether it has the form of a job's token."""
    return secret.startswith(JOB_PREFIX)


def live_tokens(job: Job, now: datetime | None = None) -> QuerySet[JobToken]:
    """Valid tokens, the newest first."""
    return JobToken.objects.filter(_not_ended(now or timezone.now()), job=job).order_by("-id")


@transaction.atomic
def token_issue(*, job: Job, actor: str, grace_s: float = 0.0) -> str:
    """Create a token and return it in clear text, only here; earlier ones expire after ``grace_s``."""
    now = timezone.now()
    replaced = _end(job, now + timedelta(seconds=grace_s), now)
    secret = JOB_PREFIX + secrets.token_urlsafe(32)
    JobToken.objects.create(job=job, digest=secret_digest(secret), created_by=actor[:150])
    detail = {"replaced": replaced, "grace_s": grace_s}
    audit(actor=actor, action="job-token", subject=str(job), detail=detail, job=job)
    return secret


@transaction.atomic
def token_of_script(*, job: Job, actor: str) -> None:
    """Create the token that agents pass to the ranks of the job's script. It is derived from the job's key, so that
    nobody has to store it.
    """
    JobToken.objects.create(job=job, digest=secret_digest(ranks_token(unseal(job.key))), created_by=actor[:150])
    audit(actor=actor, action="job-token", subject=str(job), detail={"for": "its script"}, job=job)


@transaction.atomic
def tokens_revoke(*, job: Job, actor: str) -> int:
    """Revoke all of the job's tokens immediately; returns how many were valid."""
    now = timezone.now()
    ended = _end(job, now, now)
    audit(actor=actor, action="job-token-revoke", subject=str(job), detail={"tokens": ended}, job=job)
    return ended


def rank_verdict_on(secret: str, job_id: int) -> Verdict:
    """The validity of ``secret`` for a rank of the job of that number."""
    verdict = verdict_on(secret, job_id)
    if verdict.good and not Job.objects.filter(pk=job_id, launch="attached").exists():
        return _bad(
            f"job {job_id} is native: Paceline's agents start its workers, each with its own key; only jobs with "
            "launch: attached take ranks"
        )
    return verdict


def verdict_on(secret: str, job_id: int, now: datetime | None = None) -> Verdict:
    """The validity of ``secret`` for the job of that number."""
    if not is_job_token(secret):
        found = "a token of a person" if secret else "no token"
        return _bad(f"found {found}, expected the job's own, which begins with {JOB_PREFIX}: set PACELINE_TOKEN")
    row = JobToken.objects.select_related("job").filter(digest=secret_digest(secret)).first()
    if row is None:
        return _bad(f"there is no such token; {ANOTHER.format(job=job_id)}")
    if row.job_id != job_id:
        return _bad(f"the token is of another job than {job_id}: PACELINE_JOB and PACELINE_TOKEN must be of one job")
    if row.ends_at is not None and row.ends_at <= (now or timezone.now()):
        return _bad(f"the token ended at {row.ends_at:%Y-%m-%d %H:%M:%S} UTC; {ANOTHER.format(job=job_id)}")
    return Verdict(good=True, job_over=row.job.state in JOB_OVER)


def still_good(digests: Collection[str], now: datetime | None = None) -> set[str]:
    """The hashes of those tokens that are still valid."""
    found = JobToken.objects.filter(_not_ended(now or timezone.now()), digest__in=digests)
    return set(found.values_list("digest", flat=True))


def _not_ended(now: datetime) -> Q:
    return Q(ends_at=None) | Q(ends_at__gt=now)


def _end(job: Job, at: datetime, now: datetime) -> int:
    later = JobToken.objects.filter(Q(ends_at=None) | Q(ends_at__gt=at), _not_ended(now), job=job)
    return later.update(ends_at=at)


def _bad(sentence: str) -> Verdict:
    return Verdict(good=False, sentence=sentence)
