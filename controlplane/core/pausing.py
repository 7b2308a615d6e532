"""Holding every worker at its next boundary, and why a job is paused.

A job may be paused for several causes at once, each with its reason: somebody asked for it, too few workers are
there, limits forbid the shares of those that are, a batching policy failed. It goes on by itself when the last of them
is lifted.
"""

from typing import Final, Literal

from controlplane.core import asynchrony, releases
from controlplane.core.commands import MoveJob
from controlplane.core.handling import Handling
from controlplane.core.state import Hold, Job
from controlplane.core.states import JobState

Cause = Literal["operator", "workers", "limits", "servers", "checkpoint", "policy"]

AWAITED: Final[dict[str, str]] = {
    "operator": "somebody to resume it",
    "checkpoint": "somebody to resume it",
    "workers": "more workers",
    "limits": "more workers",
    "servers": "its servers",
    "policy": "another batching policy, or somebody to resume it",
}
NAMED: Final = 8
BOUNDARY: Final = "every worker's next boundary"


def pause(handling: Handling, cause: Cause, reason: str) -> None:
    """Every worker stands at its next boundary, for one cause more or with another reason for it."""
    job = handling.job
    if job.pauses.get(cause) == reason:
        return
    job.pauses[cause] = reason
    if job.state is not JobState.PAUSED:
        stands_first = bool(job.generation.roster) and cause != "servers"
        boundary = BOUNDARY if stands_first else awaited(job)
        handling.move_job(JobState.PAUSED, reason, awaited=boundary)
        hold(handling, reason)
    else:
        handling.give(MoveJob, reason, state=job.state, awaited=awaited(job))


def lift(handling: Handling, cause: Cause, reason: str) -> None:
    """One cause holds no longer; the job goes on where it was the last."""
    job = handling.job
    if job.pauses.pop(cause, None) is None:
        return
    if not job.pauses and job.state is JobState.PAUSED:
        resume(handling, reason)
    elif job.pauses:
        left = next(iter(job.pauses.values()))
        handling.give(MoveJob, f"{reason}; still, {left}", state=job.state, awaited=awaited(job))


def resume(handling: Handling, reason: str) -> None:
    """From paused to running; a change that waits for every worker keeps holding them."""
    job = handling.job
    job.pauses.clear()
    job.paused_ms += handling.now_ms - job.since_ms
    handling.move_job(JobState.RUNNING, reason, awaited=BOUNDARY if job.requests.choices else "")
    if not job.requests.choices:
        release(handling, reason)


def awaited(job: Job) -> str:
    """What a paused job waits for; "" where it is not."""
    parts = []
    for cause in job.pauses:
        expected = [title for title in [*job.lives.starting, *job.lives.revivals] if title[0] == cause[0]]
        named = ", ".join(expected[:NAMED]) + (f" and {len(expected) - NAMED} more" if len(expected) > NAMED else "")
        parts.append(AWAITED[cause] + (f": {named}" if named else ""))
    return "; ".join(dict.fromkeys(parts))


def rebuilding_cause(handling: Handling) -> Cause:
    """Whom a job waits for whose processes all begin anew."""
    return "workers" if handling.spec.reduces else "servers"


def hold(handling: Handling, reason: str) -> None:
    """Let every worker stand at its next boundary."""
    job = handling.job
    if job.hold.sequence is None:
        job.hold = Hold(sequence=job.sequence + 1)
    if job.requests.choices and job.state is JobState.RUNNING:
        handling.give(MoveJob, reason, state=job.state, awaited=BOUNDARY)
    releases.issue_all(handling, reason)


def release(handling: Handling, reason: str) -> None:
    """Nobody needs to stand any longer."""
    job = handling.job
    if job.hold.sequence is None or job.state is JobState.PAUSED:
        return
    job.release_hold()
    releases.raise_watermarks(handling)
    asynchrony.begin(handling)
    releases.issue_all(handling, reason)
