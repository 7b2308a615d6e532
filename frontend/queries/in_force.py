"""Determines the first iteration of a share decision of an attached job, on which its ranks agree themselves."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from controlplane.jobs.models import Decision, Job
from frontend.queries.history import History, span_of

AWAITED: Final = 64
"""Number of iterations after a decision that are searched for its shares."""


def in_force(job: Job, decisions: Sequence[Decision]) -> dict[int, int]:
    """The iteration in which every rank first used its new share, by primary key of the decision.

    Decisions of native jobs are omitted, since they name their iteration; so are those that no rank has applied yet.
    """
    shared = [row for row in decisions if row.kind == "set-shares" and row.iteration is not None]
    if job.launch != "attached" or not shared:
        return {}
    places = {int(row.iteration or 0) for row in shared}
    first, _ = span_of(places)
    found = History(job).around(("samples",), places, margin=AWAITED)
    taken: dict[int, dict[int, int]] = {}
    for rank, block in found.items():
        for iteration, samples in zip(block["iteration"].tolist(), block["samples"].tolist(), strict=True):
            taken.setdefault(iteration, {})[rank] = samples
    iterations = np.array(sorted(taken), np.int64)
    held = {row.pk: _first(row, iterations, taken) for row in shared if int(row.iteration or 0) >= first}
    return {pk: iteration for pk, iteration in held.items() if iteration is not None}


def _first(row: Decision, iterations: Any, taken: dict[int, dict[int, int]]) -> int | None:
    at, shares = int(row.iteration or 0), {int(rank): share for rank, share in row.payload.get("shares", {}).items()}
    near = iterations[(iterations >= at) & (iterations < at + AWAITED)].tolist()
    return next((iteration for iteration in near if taken[iteration] == shares), None)
