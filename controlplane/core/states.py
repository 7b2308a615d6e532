"""Life cycles of a job and of its processes, as tables. No other transitions are possible."""

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


class ProcessState(StrEnum):
    """States of a worker or server process."""

    ORDERED = "ordered"
    READY = "ready"
    UNREACHABLE = "unreachable"
    FINISHED = "finished"
    LOST = "lost"
    """It has ended by itself, or sends no heartbeats."""
    STOPPED = "stopped"

    @classmethod
    def _missing_(cls, value: object) -> "ProcessState | None":
        """What logs and snapshots of earlier releases call lost."""
        return cls.LOST if value == "dead" else None


J, P = JobState, ProcessState

JOB_ARROWS: dict[JobState, frozenset[JobState]] = {
    J.SUBMITTED: frozenset({J.SCHEDULED, J.STARTING, J.CANCELLED, J.FAILED}),
    J.SCHEDULED: frozenset({J.STARTING, J.CANCELLED, J.FAILED}),
    J.STARTING: frozenset({J.RUNNING, J.CANCELLED, J.FAILED}),
    J.RUNNING: frozenset({J.PAUSED, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.PAUSED: frozenset({J.RUNNING, J.FINISHING, J.CANCELLED, J.FAILED}),
    J.FINISHING: frozenset({J.PAUSED, J.SUCCEEDED, J.CANCELLED, J.FAILED}),
    J.SUCCEEDED: frozenset(),
    J.FAILED: frozenset(),
    J.CANCELLED: frozenset(),
}

PROCESS_ARROWS: dict[ProcessState, frozenset[ProcessState]] = {
    P.ORDERED: frozenset({P.READY, P.LOST, P.STOPPED}),
    P.READY: frozenset({P.UNREACHABLE, P.FINISHED, P.LOST, P.STOPPED}),
    P.UNREACHABLE: frozenset({P.READY, P.LOST, P.STOPPED}),
    P.FINISHED: frozenset({P.LOST, P.STOPPED}),
    P.LOST: frozenset(),
    P.STOPPED: frozenset(),
}

JOB_OVER = frozenset(state for state, after in JOB_ARROWS.items() if not after)
AT_WORK = frozenset({P.ORDERED, P.READY, P.UNREACHABLE})
"""The process runs and has not reached the end of the job."""
READY, UNREACHABLE = P.READY, P.UNREACHABLE
"""For checks on every message: looking up a member in its class takes ten times as long as a global name."""
PROCESS_OVER = frozenset(state for state, after in PROCESS_ARROWS.items() if not after)

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
