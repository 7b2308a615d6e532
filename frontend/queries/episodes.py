"""Reads a job's share changes as episodes, with the effect of each."""

from typing import Final

from controlplane.jobs.models import Decision, Job
from controlplane.telemetry.metrics import ITERATION
from frontend.figures.episodes import Change, Episode, fold
from frontend.queries.effects import Lengths
from frontend.queries.history import History
from frontend.queries.in_force import in_force

CHANGES: Final = 500
"""Maximum number of changes that are grouped, the latest."""

EPISODES: Final = 10
"""Maximum number of episodes that are shown, the latest."""


def episodes(job: Job) -> list[Episode]:
    """The latest episodes, newest first."""
    rows = Decision.objects.filter(job=job, kind="set-shares", iteration__isnull=False)
    latest = list(rows.order_by("-incarnation", "-sequence")[:CHANGES])
    held = in_force(job, latest)
    changes = [
        Change(
            incarnation=row.incarnation,
            sequence=row.sequence,
            generation=int(row.payload.get("generation", 0)),
            iteration=held.get(row.pk, int(row.iteration or 0)),
            shares={int(rank): share for rank, share in row.payload.get("shares", {}).items()},
            reason=row.reason,
        )
        for row in reversed(latest)
    ]
    if not changes:
        return []
    span = [max(0, min(each.iteration for each in changes) - 10), max(each.iteration for each in changes) + 10]
    return fold(changes, Lengths(History(job).around(ITERATION, span).values()).mean)[:EPISODES]
