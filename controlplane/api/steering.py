"""Executes requests to a running job: policies, pause, resume, predictor and autopilot.

Each is audited and appended to the job's log; the engine decides when it takes effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.api.actions import NO_ANSWER
from controlplane.api.problems import FieldError, Problem, spec_problem
from controlplane.core.events import (
    AutopilotRequested,
    ChangeRequested,
    DrainRequested,
    ExclusionRequested,
    InclusionRequested,
    PauseRequested,
    PredictorPromoted,
    ResumeRequested,
    ServerRequested,
)
from controlplane.core.states import JobState
from controlplane.jobs import selectors, services
from controlplane.jobs.documents import check_plain
from controlplane.jobs.models import AuditEntry, Job
from controlplane.jobs.requests import declined
from controlplane.jobs.validation import validated_spec
from controlplane.policies import registry
from controlplane.protocol.autopilot import MODES
from controlplane.protocol.spec import CHOICES, Choice, SpecError, Synchronization
from controlplane.runtime.log import LogClosed, LogMissing, append_event

CHANGE = "job-change"

Steering = AutopilotRequested | ChangeRequested | PauseRequested | PredictorPromoted | ResumeRequested
UserRequest = Steering | DrainRequested | ExclusionRequested | InclusionRequested | ServerRequested
"""The event appended to a job's log for a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """The four current policies of a job, and a tag that distinguishes this state from earlier ones."""

    synchronization: Synchronization
    changes: int
    """Number of changes that were accepted."""
    pending: dict[str, Any]
    """The pending part of the last change, by kind, until its generation starts."""

    @property
    def etag(self) -> str:
        """The value for ``If-Match``."""
        return f'"{self.changes}"'


def job_policy(job: Job) -> JobPolicy:
    """The job's current policies."""
    accepted = AuditEntry.objects.filter(action=CHANGE, subject=str(job)).order_by("-id")
    now = selectors.job_synchronization(job)
    last = accepted.first()
    requested = {} if last is None or job.is_over else last.detail
    if last is not None and declined(job, last):
        requested = {}
    pending = {question: choice for question, choice in requested.items() if choice != getattr(now, question).flat}
    return JobPolicy(synchronization=now, changes=accepted.count(), pending=pending)


def change_policy(*, job: Job, document: object, if_match: str | None, user: User) -> None:
    """Request other policies. The caller has locked the job's row: of two clients with the same tag one succeeds.

    Raises:
        Problem: if they are invalid, the caller has an outdated ETag, or the job starts no further iteration.
    """
    before = job_policy(job)
    _check_seen(job, before, if_match)
    check_state(job, "changed", (JobState.RUNNING, JobState.PAUSED))
    choices = _choices(job, before.synchronization, document)
    detail = {question: choice.flat for question, choice in choices.items()}
    ask(job, ChangeRequested(actor=user.get_username(), choices=choices), "changed", action=CHANGE, detail=detail)


def pause_job(*, job: Job, user: User) -> None:
    """Request a pause: every worker stops at its next iteration boundary.

    Raises:
        Problem: if the job does not run, or Redis does not answer.
    """
    check_state(job, "paused", (JobState.RUNNING,))
    ask(job, PauseRequested(actor=user.get_username()), "paused", action="job-pause")


def resume_job(*, job: Job, user: User) -> None:
    """Request that a paused job resumes.

    Raises:
        Problem: if the job is not paused, or Redis does not answer.
    """
    check_state(job, "resumed", (JobState.PAUSED,))
    ask(job, ResumeRequested(actor=user.get_username()), "resumed", action="job-resume")


def promote_predictor(*, job: Job, document: object, user: User) -> None:
    """Request that share decisions use another of the running predictors.

    Raises:
        Problem: if the job has no such predictor, does not run, or Redis does not answer.
    """
    name = document.get("predictor") if isinstance(document, Mapping) else None
    predictors = registry.predictors(selectors.job_synchronization(job).batching)
    if not isinstance(name, str) or name not in predictors:
        allowed = (
            f"one of the running predictors: {', '.join(predictors)}"
            if predictors
            else "none: the job has no predictors"
        )
        fault = FieldError(field="predictor", found=name, expected=allowed)
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"predictor: expected {allowed}", errors=[fault])
    check_state(job, "given another predictor", (JobState.RUNNING, JobState.PAUSED))
    event = PredictorPromoted(predictor=name, actor=user.get_username())
    ask(job, event, "given another predictor", action="predictor-promote", detail={"predictor": name})


def set_autopilot(*, job: Job, document: object, user: User) -> None:
    """Request that the job's autopilot switches automatically (auto), or only proposes (suggest).

    Raises:
        Problem: if the job has no autopilot or does not run, the mode is invalid, or Redis does not answer.
    """
    mode = document.get("mode") if isinstance(document, Mapping) else None
    if mode not in MODES:
        fault = FieldError(field="mode", found=mode, expected="auto or suggest")
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "mode: expected auto or suggest", errors=[fault])
    if job.spec.get("autopilot") is None:
        raise Problem(HTTPStatus.CONFLICT, f"{job} has no autopilot: submit it with policy: auto or policy: suggest")
    check_state(job, "given another mode of its autopilot", (JobState.RUNNING, JobState.PAUSED))
    event = AutopilotRequested(actor=user.get_username(), mode=mode)
    ask(job, event, "given another mode of its autopilot", action="autopilot-mode", detail={"mode": mode})


def _choices(job: Job, now: Synchronization, document: object) -> dict[str, Choice]:
    """The changed policies, validated together with the unchanged ones."""
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


def ask(job: Job, event: UserRequest, done: str, *, action: str, detail: Mapping[str, Any] | None = None) -> AuditEntry:
    """Audit a user's request, then append it to the job's log: a request that cannot be audited is not executed.

    Raises:
        Problem: as ``_append``; the audit entry is then rolled back.
    """
    with transaction.atomic():
        row = services.audit(actor=event.actor, action=action, subject=str(job), detail=detail, job=job)
        row.entry = _append(job, event, done)
        row.save(update_fields=["entry"])
    return row


def _append(job: Job, event: UserRequest, done: str) -> str:
    """Append a request to the job's log. Returns the entry's id.

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
