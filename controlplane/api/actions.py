"""Executes requests on jobs: writes rows through services, then appends to the log. Each action is audited."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import kombu.exceptions
import msgspec
import redis.exceptions
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from controlplane.api.problems import FieldError, Problem
from controlplane.core.events import StopRequested
from controlplane.core.states import JobState
from controlplane.jobs import services
from controlplane.jobs.models import Job
from controlplane.jobs.projections import LOST_AWAITS, end_lost_job
from controlplane.jobs.queue import LAST, slot_request_for
from controlplane.jobs.stored_specs import UnreadableSpec, stored_spec
from controlplane.jobs.tokens import token_issue, token_of_script
from controlplane.jobs.validation import validated_spec
from controlplane.jobs.waiting import Queue
from controlplane.people import quotas
from controlplane.people.models import Team
from controlplane.people.teams import TeamRefused, team_for
from controlplane.protocol.faults import fault_of
from controlplane.protocol.spec import JobSpec, Priority, SpecError, parse_spec
from controlplane.runtime import queue, ticks
from controlplane.runtime.log import LogClosed, LogMissing, append_event, start_log
from controlplane.runtime.redis import shared

NO_ANSWER = (redis.exceptions.RedisError, kombu.exceptions.OperationalError)
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A submitted job, with the plain token of its ranks."""

    job: Job
    token: str | None
    """None: agents start its workers, or the job was submitted before."""


def submit_job(
    *, document: object, user: User, idempotency_key: str | None = None, team: str | None = None
) -> Accepted:
    """Accept a job for the given team, or the user's first one, and start its log.

    If Redis does not answer, beat starts the log later from the row.

    Raises:
        SpecError: if the document is not a valid spec.
        Problem: if the idempotency key was used before with another spec, the user may not submit for the team, or a
            quota is used up.
    """
    owner = submitting_team(user, team)
    try:
        submission = services.job_submit(
            document=document,
            user=user,
            idempotency_key=idempotency_key,
            team=owner.pk if owner else None,
            check=lambda spec: quotas.check_job(spec=spec, user=user, team=owner),
        )
    except quotas.QuotaExceeded as exceeded:
        raise quota_problem(exceeded) from None
    except services.IdempotencyConflict as conflict:
        raise Problem(422, str(conflict)) from None
    job, token = submission.job, None
    if submission.created:
        transaction.on_commit(lambda: _begin(job))
        if job.has_script:
            token_of_script(job=job, actor=user.get_username())
        elif job.launch == "attached":
            token = token_issue(job=job, actor=user.get_username())
    return Accepted(job=job, token=token)


def submitting_team(user: User, name: str | None) -> Team | None:
    """The team that owns what the user submits.

    Raises:
        Problem: if the user may not submit for it.
    """
    try:
        return team_for(user, name)
    except TeamRefused as refused:
        raise Problem(403, str(refused)) from None


def quota_problem(exceeded: quotas.QuotaExceeded) -> Problem:
    """The error for a request that would exceed a quota."""
    field = f"quota.{exceeded.resource}"
    fault = FieldError(field=field, found=exceeded.found, expected=f"at most {exceeded.limit:,}")
    return Problem(409, str(exceeded), errors=[fault])


def check_job(*, document: object, user: User, team: str | None = None) -> tuple[JobSpec, str, str]:
    """The spec that would be submitted, what it would wait for as text, and the outcome; nothing is stored.

    Raises:
        SpecError: if the document is not a valid spec.
    """
    spec = validated_spec(document)
    now, owner = timezone.now(), submitting_team(user, team)
    try:
        with transaction.atomic():
            quotas.check_job(spec=spec, user=user, team=owner)
    except quotas.QuotaExceeded as exceeded:
        raise quota_problem(exceeded) from None
    waiting = Queue(now, slot_request_for(spec, now, team=owner.pk if owner else 0)).waiting(LAST)
    return spec, waiting.sentence if waiting else "", waiting.outcome if waiting else "starts"


def stop_job(*, job: Job, actor: str, reason: str = "") -> None:
    """Request that the engine ends the job, running or queued.

    Raises:
        Problem: if it is over, or Redis does not answer.
    """
    over, stop = Problem(409, f"{job} is already over ({job.state})"), StopRequested(actor=actor, reason=reason)
    if job.is_over:
        raise over
    with transaction.atomic():  # a request that cannot be audited is not executed
        detail = {"reason": reason} if reason else {}
        services.audit(actor=actor, action="job-stop", subject=str(job), detail=detail, job=job)
        _stop(job, stop, over)


def _stop(job: Job, stop: StopRequested, over: Problem) -> None:
    try:
        if job.state == JobState.SUBMITTED and not job.cursors.exists():
            start_log(job.pk, stored_spec(job))
        append_event(job.pk, stop)
    except UnreadableSpec as error:  # it has never started and cannot start
        end_lost_job(job.pk, JobState.CANCELLED, f"{stop.sentence}; {error}", timezone.now())
    except LogMissing:
        _stop_without_log(job, stop)
    except LogClosed:
        raise over from None
    except NO_ANSWER as error:
        raise Problem(503, f"{job} was not stopped: Redis does not answer ({error}); try again") from error


def prioritise_job(*, job: Job, document: object, user: User) -> None:
    """Change the priority of a queued job.

    Raises:
        SpecError: if the value is not a priority.
        Problem: if the job is no longer queued.
    """
    priority = _priority(document)
    if not services.job_prioritise(job_id=job.pk, priority=priority, actor=user.get_username()):
        raise Problem(409, f"{job} is no longer queued: the priority only affects queued jobs")
    transaction.on_commit(lambda: _move_queue(job))


def move_job(*, job: Job, before: int | None, user: User) -> None:
    """Move a waiting job before another one in the queue, or to the end.

    Raises:
        Problem: if either job is not waiting.
    """
    if not services.job_move(job_id=job.pk, before=before, actor=user.get_username()):
        other = "" if before is None else f", or job {before} is not another queued job"
        raise Problem(409, f"{job} is not queued{other}: only queued jobs have an order")
    transaction.on_commit(lambda: _move_queue(job))


def _priority(document: object) -> int:
    given = dict(document) if isinstance(document, Mapping) else {}
    try:
        if set(given) == {"priority"}:
            return msgspec.convert(given["priority"], Priority)
    except msgspec.ValidationError as error:
        raise SpecError("priority", given["priority"], fault_of(error).expected) from None
    raise SpecError("", document, 'an object with priority alone, such as {"priority": 10}')


def _move_queue(job: Job) -> None:
    """Notify pages, and have the scheduler check; without Redis it checks each second in any case."""
    try:
        ticks.publish(shared(), jobs={job.pk: job.state})
        queue.request_schedule()
    except (*NO_ANSWER, RuntimeError) as error:
        logger.warning("failed to notify pages of the priority of %s: %s", job, error)


def _stop_without_log(job: Job, stop: StopRequested) -> None:
    """Stop a job without a log in Redis, unless its log is being recovered."""
    if job.awaited != LOST_AWAITS:
        raise Problem(503, f"{job} was not stopped: its log is being recovered; try again in a few seconds")
    end_lost_job(job.pk, JobState.CANCELLED, f"{stop.sentence}; {job.reason}", timezone.now())


def _begin(job: Job) -> None:
    try:
        start_log(job.pk, parse_spec(job.spec))
    except NO_ANSWER as error:
        logger.warning("the log of %s will be started later: Redis does not answer (%s)", job, error)
