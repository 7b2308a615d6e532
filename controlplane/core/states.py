"""The life cycle of a job, as a table, and how a state moves along its table. No other transitions are possible."""

from enum import StrEnum
from typing import TypeVar


class JobState(StrEnum):
    """States of a job."""

    SUBMITTED = "submitted"
    SCHEDULED = "scheduled"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHING = "finishing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


J = JobState

JOB_ARROWS: dict[JobState, frozenset[JobState]] = {
    J.SUBMITTED: frozenset({J.SCHEDULED, J.STARTING, J.CANCELLED, J.FAILED}),
    J.SCHEDULED: frozenset({J.STARTING, J.CANCELLED, J.FAILED}),
    J.STARTING: frozenset({J.RUNNING, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.RUNNING: frozenset({J.PAUSED, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.PAUSED: frozenset({J.RUNNING, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.FINISHING: frozenset({J.PAUSED, J.SUCCEEDED, J.CANCELLED, J.FAILED}),
    J.SUCCEEDED: frozenset(),
    J.FAILED: frozenset(),
    J.CANCELLED: frozenset(),
}

JOB_OVER = frozenset(state for state, after in JOB_ARROWS.items() if not after)

ENDED_AS: dict[str, str] = {J.SUCCEEDED: "has succeeded", J.FAILED: "has failed", J.CANCELLED: "was cancelled"}

State = TypeVar("State", bound=StrEnum)


def in_words(state: str) -> str:
    """The state as the end of a sentence that begins with "the job": "has succeeded", "is running"."""
    return ENDED_AS.get(state, f"is {state}")


class IllegalMove(RuntimeError):
    """A state was asked to change along an arrow that does not exist; nothing has changed."""


def move(subject: str, arrows: dict[State, frozenset[State]], old: State, new: State) -> State:
    """``new``, if the table has that arrow.

    Raises:
        IllegalMove: naming the subject, both states, and where it may go.
    """
    if new not in arrows[old]:
        allowed = ", ".join(sorted(arrows[old])) or "nowhere: it is over"
        raise IllegalMove(f"{subject}: cannot go from {old} to {new}; from {old} it may go to {allowed}")
    return new
