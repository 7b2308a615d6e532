"""Reads a job's requests that have not taken effect yet."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.jobs.models import Job
from controlplane.jobs.requests import Request, Stage, open_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request as text."""

    stage: str
    what: str
    actor: str
    at: datetime
    reason: str
    declined: bool


WORDS = {
    "job-pause": "pause",
    "job-resume": "resume",
    "job-stop": "stop",
    "predictor-promote": "change of predictor",
    "autopilot-mode": "mode of the autopilot",
    "worker-exclude": "exclude {about}",
    "worker-include": "include {about}",
    "worker-drain": "drain {about}",
    "server-add": "additional server",
    "server-drain": "drain {about}",
}
"""Text by audit action."""


def open_lines(job: Job, now: datetime) -> list[RequestLine]:
    """Requests that are pending or in progress, and recently declined ones."""
    return [
        RequestLine(
            stage=each.stage,
            what=in_words(each),
            actor=each.actor,
            at=each.at,
            reason=each.reason,
            declined=each.stage is Stage.DECLINED,
        )
        for each in open_requests(job, now)
    ]


def in_words(request: Request) -> str:
    """``batching → uniform``, ``drain w3``."""
    if request.action == "job-change":
        changed = [f"{question} → {choice.get('name', '?')}" for question, choice in request.detail.items()]
        return ", ".join(changed)
    return WORDS.get(request.action, request.action).format(about=request.about or "it")
