"""Reads the marks of a job's charts: changes by operators and policies, and processes that joined or left."""

from dataclasses import replace
from typing import Final

from django.db.models import Q

from controlplane.core.states import JobState
from controlplane.jobs.models import Decision, Job
from frontend.figures.marks import MOST
from frontend.figures.rows import Mark
from frontend.models import JobNote
from frontend.queries.clock import JobClock
from frontend.queries.wording import describe

MARKED: Final = (
    *("change-policies", "judge-convergence", "adopt-predictor", "move-blocks", "roll-back"),
    *("leave-out", "take-back", "request-slot", "drain-server"),
)
"""Kinds of decisions that are always marked."""

MEMBERSHIP: Final = Q(payload__state="lost") | Q(payload__state="ready") & ~Q(payload__instance__endswith=".1")
"""A worker or server was lost, or a new instance of one is ready."""

MOST_READ: Final = 20 * MOST
"""Maximum number of decisions read: some changes of the job's state are then dropped."""

STATES: Final = (JobState.PAUSED, JobState.RUNNING)


def marks(job: Job) -> tuple[Mark, ...]:
    """The latest marks, in order."""
    if job.started_at is None:
        return ()
    clock = JobClock(job)
    started = job.started_at
    decided = [clock.mark((row.at - started).total_seconds(), row.iteration, _words(row)) for row in _marked(job)]
    noted = [
        replace(clock.mark((row.at - started).total_seconds(), row.iteration, _note(row)), is_note=True)
        for row in JobNote.objects.filter(job=job).order_by("-iteration", "-id")[:MOST]
    ]
    return (*decided, *noted)


def _marked(job: Job) -> list[Decision]:
    """The latest marked decisions, in order. They are read backwards from the last one, so that many earlier decisions
    cannot displace them.
    """
    kinds = Q(kind__in=(*MARKED, "move-job")) | Q(kind="move-process") & MEMBERSHIP
    rows = Decision.objects.filter(kinds, job=job, at__gte=job.started_at).order_by("-incarnation", "-sequence")
    state, kept = str(JobState.RUNNING), []
    for row in reversed(rows[:MOST_READ]):
        moved = str(row.payload.get("state", "")) if row.kind == "move-job" else state
        if row.kind != "move-job" or (moved != state and moved in STATES):
            kept.append(row)
        state = moved
    return kept[-MOST:]


def _note(row: JobNote) -> str:
    return f"Note by {row.actor}: {row.text}"


def _words(row: Decision) -> str:
    return f"{describe(row.kind, row.payload)}: {row.reason}" if row.reason else describe(row.kind, row.payload)
