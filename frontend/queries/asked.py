"""What people asked of a job and has no effect yet, as its page shows it."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.jobs.models import Job
from controlplane.jobs.requests import Request, Stage, open_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """One request in words."""

    stage: str
    what: str
    actor: str
    at: datetime
    reason: str
    declined: bool


WORDS = {
    "job-pause": "a pause",
    "job-resume": "its resumption",
    "job-stop": "its end",
    "predictor-promote": "another predictor",
    "worker-exclude": "{about} is excluded",
    "worker-include": "{about} is included",
    "worker-drain": "{about} is drained",
    "server-add": "another server",
    "server-drain": "{about} is drained",
}
"""By the audit's action."""


def open_lines(job: Job, now: datetime) -> list[RequestLine]:
    """Those that are pending or under way, and for a while those that were declined."""
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
    """``batching becomes uniform``, ``w3 is drained``."""
    if request.action == "job-change":
        changed = [f"{question} becomes {choice.get('name', '?')}" for question, choice in request.detail.items()]
        return ", ".join(changed)
    return WORDS.get(request.action, request.action).format(about=request.about or "it")
