"""Requests to a running job: other policies, a pause, its end, another predictor.

Each appends the request to the job's log and leaves an audit entry; the engine decides when it takes effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User

from controlplane.api.actions import NO_ANSWER
from controlplane.api.problems import FieldError, Problem, spec_problem
from controlplane.core.events import ChangeRequested, Event, PauseRequested, PredictorPromoted, ResumeRequested
from controlplane.core.states import JobState
from controlplane.jobs import selectors, services
from controlplane.jobs.documents import check_plain
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.requests import declined
from controlplane.jobs.validation import validated_spec
from controlplane.policies import registry
from controlplane.protocol.spec import CHOICES, Choice, SpecError, Synchronization
from controlplane.runtime.log import LogClosed, LogMissing, append_event

CHANGE = "job-change"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The four current policies of a job, and a tag that distinguishes this state from earlier ones."""

    synchronization: Synchronization
    changes: int
    """Number of changes that were accepted."""
    pending: dict[str, Any]
    """The pending part of the last change, by kind: it waits for the generation that carries it."""

    @property
    def etag(self) -> str:
        """The value for ``If-Match``."""
        return f'"{self.changes}"'


def job_policy(job: Job) -> JobPolicy:
    """What the job runs with."""
    accepted = AuditEntry.objects.filter(action=CHANGE, subject=str(job)).order_by("-id")
    now = selectors.job_synchronization(job)
    last = accepted.first()
    requested = {} if last is None or job.is_over else last.detail
    if last is not None and declined(job, last):
        requested = {}
    pending = {question: choice for question, choice in requested.items() if choice != getattr(now, question).flat}
    return JobPolicy(synchronization=now, changes=accepted.count(), pending=pending)


def change_policy(*, job: Job, document: object, if_match: str | None, user: User) -> None:
    """Request other policies. The caller has locked the job's row: of two clients with the same tag only one succeeds.

    Raises:
        Problem: if they are not possible, the caller saw an older state, or the job starts no further iteration.
    """
    before = job_policy(job)
    _check_seen(job, before, if_match)
    check_state(job, "changed", (JobState.RUNNING, JobState.PAUSED))
    choices = _choices(job, before.synchronization, document)
    entry = append(job, ChangeRequested(actor=user.get_username(), choices=choices), "changed")
    detail = {question: choice.flat for question, choice in choices.items()}
    services.audit(actor=user.get_username(), action=CHANGE, subject=str(job), detail=detail, job=job, entry=entry)


def pause_job(*, job: Job, user: User) -> None:
    """Request a pause: every worker stops at its next iteration boundary.

    Raises:
        Problem: if the job does not run, or Redis does not answer.
    """
    check_state(job, "paused", (JobState.RUNNING,))
    entry = append(job, PauseRequested(actor=user.get_username()), "paused")
    services.audit(actor=user.get_username(), action="job-pause", subject=str(job), job=job, entry=entry)


def resume_job(*, job: Job, user: User) -> None:
    """Request that a paused job resumes.

    Raises:
        Problem: if the job is not paused, or Redis does not answer.
    """
    check_state(job, "resumed", (JobState.PAUSED,))
    entry = append(job, ResumeRequested(actor=user.get_username()), "resumed")
    services.audit(actor=user.get_username(), action="job-resume", subject=str(job), job=job, entry=entry)


def promote_predictor(*, job: Job, document: object, user: User) -> None:
    """Request that shares are decided with another of the predictors that run side by side.

    Raises:
        Problem: if the job has no such predictor, does not run, or Redis does not answer.
    """
    name = document.get("predictor") if isinstance(document, Mapping) else None
    predictors = registry.predictors(selectors.job_synchronization(job).batching)
    if not isinstance(name, str) or name not in predictors:
        allowed = f"one of the running predictors: {', '.join(predictors)}" if predictors else "none: it has none"
        fault = FieldError(field="predictor", found=name, expected=allowed)
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"predictor: expected {allowed}", errors=[fault])
    check_state(job, "given another predictor", (JobState.RUNNING, JobState.PAUSED))
    entry = append(job, PredictorPromoted(predictor=name, actor=user.get_username()), "given another predictor")
    detail = {"predictor": name}
    actor = user.get_username()
    services.audit(actor=actor, action="predictor-promote", subject=str(job), detail=detail, job=job, entry=entry)


def _choices(job: Job, now: Synchronization, document: object) -> dict[str, Choice]:
    """The policies that change, validated together with those that stay."""
    if not isinstance(document, Mapping) or not document or set(document) - set(CHOICES):
        raise spec_problem(SpecError("", document, f"a mapping with one or more of {', '.join(CHOICES)}"))
    try:
        check_plain(document)
        present = {question: getattr(now, question).flat for question in CHOICES}
        spec = validated_spec({**job.spec, "synchronization": {**present, **document}})
    except SpecError as error:
        problem = spec_problem(error)
        if error.field == "synchronization":
            problem.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
        raise problem from None
    requested = {question: getattr(spec.synchronization, question) for question in document}
    choices = {question: choice for question, choice in requested.items() if choice != getattr(now, question)}
    if not choices:
        raise Problem(HTTPStatus.CONFLICT, f"{job} already runs with these policies")
    return choices


def _check_seen(job: Job, policy: JobPolicy, if_match: str | None) -> None:
    if if_match is None:
        needed = f"If-Match is required: read the ETag of jobs/{job.pk}/policy first"
        raise Problem(HTTPStatus.PRECONDITION_REQUIRED, needed)
    seen = {tag.strip().removeprefix("W/") for tag in if_match.split(",")}
    if policy.etag not in seen and "*" not in seen:
        raise Problem(
            HTTPStatus.PRECONDITION_FAILED,
            f"{job} has changed since it was read: its policy is {policy.etag}, If-Match was {if_match}; read it again",
        )


def check_state(job: Job, done: str, allowed: tuple[JobState, ...]) -> None:
    """Raise a ``Problem`` unless the job is in one of these states."""
    if job.state not in allowed:
        states = " or ".join(state.value for state in allowed)
        raise Problem(HTTPStatus.CONFLICT, f"{job} is {job.state}: only one that is {states} can be {done}")


def append(job: Job, event: Event, done: str) -> str:
    """Append a request to the job's log; the entry's id.

    Raises:
        Problem: if the log is closed or is being recovered, or Redis does not answer.
    """
    try:
        return append_event(job.pk, event)
    except LogClosed:
        raise Problem(HTTPStatus.CONFLICT, f"{job} is over: it cannot be {done}") from None
    except LogMissing:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{job} was not {done}: its log is being recovered; try again in a few seconds",
        ) from None
    except NO_ANSWER as error:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, f"{job} was not {done}: Redis does not answer ({error}); try again"
        ) from error
