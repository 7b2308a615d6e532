"""Reads users' requests to a job's engine, and their outcome.

A request is an audit entry that names a log entry; the engine's decisions name the same log entry as their cause. So
nothing is stored twice. A request is pending until a decision answers it, and done when it has taken effect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from controlplane.core.states import PROCESS_OVER, ProcessState
from controlplane.jobs.models import AuditEntry, Decision, Job, Process

SHOWN: Final = 20
"""Most requests to read: the latest ones."""

DECLINED_SHOWN_FOR: Final = timedelta(minutes=2)
DECLINE: Final = "decline-request"


class Stage(StrEnum):
    """The progress of a request."""

    PENDING = "pending"
    """The engine has not answered it yet."""
    UNDER_WAY = "under way"
    """It was accepted, and takes effect at a later iteration boundary."""
    DONE = "done"
    DECLINED = "declined"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    id: int
    at: datetime
    actor: str
    action: str
    about: str
    """``w3`` or ``s1``; empty for the whole job."""
    detail: dict[str, Any]
    stage: Stage
    reason: str
    """The engine's explanation; empty while the request is pending."""


def job_requests(job: Job) -> list[Request]:
    """The latest requests to the job's engine, the latest first."""
    return _requests(job, list(AuditEntry.objects.filter(job=job).exclude(entry="").order_by("-id")[:SHOWN]))


def request_of(job: Job, row: AuditEntry) -> Request:
    """The request to the job's engine with this audit entry."""
    return _requests(job, [row])[0]


def _requests(job: Job, entries: list[AuditEntry]) -> list[Request]:
    answers: dict[str, Decision] = {}
    found = Decision.objects.filter(job=job, cause__in=[row.entry for row in entries])
    for decision in found.order_by("-incarnation", "-sequence"):
        answers[decision.cause] = decision
    return [_request(job, row, answers.get(row.entry)) for row in entries]


def open_requests(job: Job, now: datetime) -> list[Request]:
    """Requests without effect so far, and recently declined ones."""
    if job.is_over:
        return []
    found = job_requests(job)
    return [
        each
        for each in found
        if each.stage in (Stage.PENDING, Stage.UNDER_WAY)
        or (each.stage is Stage.DECLINED and now - each.at < DECLINED_SHOWN_FOR)
    ]


def declined(job: Job, row: AuditEntry) -> bool:
    """Whether the engine has declined it."""
    return bool(row.entry) and Decision.objects.filter(job=job, kind=DECLINE, cause=row.entry).exists()


def _request(job: Job, row: AuditEntry, answer: Decision | None) -> Request:
    return Request(
        id=row.pk,
        at=row.at,
        actor=row.actor,
        action=row.action,
        about=str(row.detail.get("process", "")),
        detail=row.detail,
        stage=_stage(job, row, answer),
        reason=answer.reason if answer is not None else "",
    )


def _stage(job: Job, row: AuditEntry, answer: Decision | None) -> Stage:
    if answer is None:
        return Stage.DONE if job.is_over else Stage.PENDING
    if answer.kind == DECLINE:
        return Stage.DECLINED
    reached = _REACHED.get(row.action)
    return Stage.DONE if reached is None or job.is_over or reached(job, row, answer) else Stage.UNDER_WAY


def _change_holds(job: Job, row: AuditEntry, answer: Decision) -> bool:
    """Whether the generation with the change has started, or a later change has replaced it."""
    if answer.kind == "change-policies":
        return True
    later = Decision.objects.filter(job=job, kind="change-policies", at__gte=answer.at)
    newer = AuditEntry.objects.filter(job=job, action=row.action, id__gt=row.pk)
    return later.exists() or newer.exists()


def _is_gone(job: Job, row: AuditEntry, answer: Decision) -> bool:
    """Whether the process has ended, or a later request has replaced this one."""
    life = _latest(job, row)
    return life is None or life.state in PROCESS_OVER or _is_overtaken(job, row)


def _is_back(job: Job, row: AuditEntry, answer: Decision) -> bool:
    """Whether the worker counts again, or a later request has replaced this one."""
    life = _latest(job, row)
    return (life is not None and life.counts_from is not None) or _is_overtaken(job, row)


def _server_is_here(job: Job, row: AuditEntry, answer: Decision) -> bool:
    """Whether the requested server has sent its hello, or no slot was found for it."""
    index = answer.payload.get("index")
    lives = Process.objects.filter(job=job, role="server", index=index)
    if lives.exclude(state=ProcessState.ORDERED).exists():
        return True
    refused = Decision.objects.filter(job=job, at__gt=answer.at, reason__startswith="no slot for another server")
    return refused.exists()


def _is_overtaken(job: Job, row: AuditEntry) -> bool:
    """Whether there was another request about the same process since."""
    newer = AuditEntry.objects.filter(job=job, detail__process=row.detail.get("process"), id__gt=row.pk)
    return newer.exclude(entry="").exists()


def _latest(job: Job, row: AuditEntry) -> Process | None:
    title = str(row.detail.get("process", ""))
    role = "worker" if title.startswith("w") else "server"
    number = title[1:]
    if not number.isdecimal():
        return None
    return Process.objects.filter(job=job, role=role, index=int(number)).order_by("-started_at", "-id").first()


_REACHED: Final[dict[str, Callable[[Job, AuditEntry, Decision], bool]]] = {
    "job-change": _change_holds,
    "worker-drain": _is_gone,
    "worker-include": _is_back,
    "server-add": _server_is_here,
    "server-drain": _is_gone,
}
"""Requests that take effect later than their answer."""
