"""Reads the policy change that a job's page suggests, and how to revert the last one."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from controlplane.api.steering import job_policy
from controlplane.core import choices, supervisors
from controlplane.core.states import JobState
from controlplane.jobs.autopilots import changed_by
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.protocol.spec import Choice
from controlplane.runtime import forecasts
from controlplane.runtime.alternatives import Alternative, advised, job_alternatives
from controlplane.runtime.models import Forecast
from frontend.queries.effects import effects
from frontend.queries.job import request_actors

BY_THEMSELVES: Final = {supervisors.ACTOR: "the autopilot", choices.GUARD: "the guard"}
"""Sources of policy changes besides users."""

OFFERED: Final = timedelta(hours=1)
"""How long after a change its reversal is offered at the top of the page."""

OLD: Final = timedelta(minutes=5)
"""If workers wait, the job is simulated again after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """The last policy change that took effect, and the request that reverts it."""

    at: datetime
    actor: str
    iteration: int | None
    was: str
    now: str
    request: dict[str, Any]
    gain: float | None
    """The fraction by which iterations became shorter; None: not measured yet."""
    is_harmful: bool
    """Whether the guard found that it harms convergence."""
    judgement: str
    """The guard's reason; empty if it has not assessed the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """An operator's current options for a job's policies."""

    etag: str
    """For ``If-Match``."""
    pending: bool
    """Whether a change was requested that has not taken effect."""
    switch: Alternative | None
    back: Back | None


def advice(job: Job, now: datetime, *, waits: bool) -> Advice | None:
    """The advice for a job whose policies can be changed. If its workers wait, it is simulated again after ``OLD``."""
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or job.simulation_id is not None:
        return None
    if waits and not Forecast.objects.filter(job=job, made_at__gt=now - OLD).exists():
        forecasts.want(job.pk)
    policy = job_policy(job)
    return Advice(
        etag=policy.etag,
        pending=bool(policy.pending),
        switch=advised(job_alternatives(job)),
        back=_back(job, now),
    )


def _back(job: Job, now: datetime) -> Back | None:
    rows = list(Decision.objects.filter(job=job, kind="change-policies").order_by("incarnation", "sequence"))
    if not rows or now - rows[-1].at > OFFERED:
        return None
    before = stored_spec(job).synchronization
    for row in rows[:-1]:
        before = msgspec.structs.replace(before, **_choices(row))
    last = rows[-1]
    effect = effects(job, [last]).get(last.pk)
    judgements = Decision.objects.filter(job=job, kind="judge-convergence", at__gte=last.at).order_by("-at")
    judged = next(
        (each for each in judgements if not each.payload.get("grown_from")), None
    )  # other assessments are about a larger batch
    follows = judged is not None and judged.cause == last.cause  # the guard itself made this change
    is_harmful = judged is not None and not follows and judged.payload.get("verdict") == "harmful"
    was = {question: getattr(before, question) for question in _choices(last)}
    if is_harmful and judged is not None:
        was = _choices(judged) or was  # possibly of an earlier change
    return Back(
        at=last.at,
        actor=BY_THEMSELVES.get(changed_by(last), "") or request_actors(job).get(last.cause, ""),
        iteration=last.iteration,
        was=", ".join(choice.name for choice in was.values()),
        now=", ".join(choice.name for choice in _choices(last).values()),
        request={question: choice.flat for question, choice in was.items()},
        gain=effect.gain if effect is not None else None,
        is_harmful=is_harmful,
        judgement=judged.reason if judged is not None else "",
    )


def _choices(row: Decision) -> dict[str, Choice]:
    return msgspec.convert(row.payload["choices"], dict[str, Choice])
