"""Measures effects of decisions: iteration times before and after each, and the predicted time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controlplane.jobs.models import Decision, Job
from controlplane.telemetry.metrics import BUSY, ITERATION
from frontend.figures.predictions import MISSED
from frontend.figures.rows import Predictions, View
from frontend.queries.history import History
from frontend.queries.in_force import in_force

AROUND = 10
"""Iterations before and after a decision that are compared."""

ACTING = frozenset({"set-shares", "set-roster", "set-placement", "change-policies"})
"""Kinds of decisions that affect iteration times."""

PREDICTED = 200
"""Maximum number of predictions drawn beside the measured times, the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Mean iteration times before and after a decision in seconds; None: not measured yet."""

    before_s: float | None
    after_s: float | None
    predicted_s: float | None
    """Predicted busy time of the slowest worker."""
    busy_s: float | None
    """The measured busy time, in the first iteration under the decision."""

    @property
    def gain(self) -> float | None:
        """The fraction by which iterations became shorter; negative if they became longer."""
        if self.before_s is None or self.after_s is None or self.before_s <= 0:
            return None
        return 1 - self.after_s / self.before_s

    @property
    def miss(self) -> float | None:
        """Relative error: measured over predicted, minus one."""
        return None if not self.predicted_s or self.busy_s is None else self.busy_s / self.predicted_s - 1

    @property
    def off(self) -> float:
        """The absolute relative error of the prediction."""
        return abs(self.miss or 0.0)

    @property
    def missed(self) -> bool:
        """Whether the prediction is marked as a miss."""
        return self.off > MISSED


def effects(job: Job, decisions: Sequence[Decision]) -> dict[int, Effect]:
    """The effects of decisions by primary key; reads the columns once for all of them.

    The compared iterations end at the neighbouring decision or after ``AROUND``, whichever comes first, so that
    effects of other decisions are not included.
    """
    acting = [row for row in decisions if row.kind in ACTING and row.iteration is not None]
    if not acting:
        return {}
    held = in_force(job, acting)
    places = {row.pk: held.get(row.pk, int(row.iteration or 0)) for row in acting}
    at = sorted(set(places.values()))
    table = Lengths(History(job).around(ITERATION, at, margin=AROUND).values())
    return {row.pk: _effect(row, places[row.pk], table, at) for row in acting}


def predictions(job: Job, view: View) -> Predictions:
    """Predicted and measured times of the latest decisions that have taken effect, oldest first."""
    rows = Decision.objects.filter(job=job, kind="set-shares", iteration__lte=job.iteration)
    latest = list(rows.order_by("-incarnation", "-sequence")[:PREDICTED])
    held = in_force(job, latest)
    predicted_s = {
        held.get(row.pk, int(row.iteration or 0)): float(row.payload["predicted_s"])
        for row in reversed(latest)
        if row.payload.get("predicted_s")
    }
    table = None
    if predicted_s:
        table = Lengths(History(job).around(ITERATION, predicted_s).values())
    found = [(at, predicted, table.slowest(at)) for at, predicted in sorted(predicted_s.items())] if table else []
    known = [(at, predicted, measured) for at, predicted, measured in found if measured]
    return Predictions(
        iteration=np.array([at for at, _, _ in known], np.int64),
        predicted_s=np.array([predicted for _, predicted, _ in known], np.float64),
        measured_s=np.array([measured for _, _, measured in known], np.float64),
    )


class Lengths:
    """Per iteration: the mean iteration time over the workers, and the busy time of the slowest."""

    def __init__(self, blocks: Iterable[dict[str, NDArray[np.float64]]]) -> None:
        parts = list(blocks)
        none = np.empty(0)
        iteration = np.concatenate([part["iteration"] for part in parts]) if parts else none
        self.iteration, place = np.unique(iteration, return_inverse=True)
        whole, busy = (
            np.concatenate([np.sum([part[name] for name in names], axis=0) for part in parts]) if parts else none
            for names in (ITERATION, BUSY)
        )
        self.mean_s = np.bincount(place, weights=whole) / np.bincount(place) if parts else none
        self.slowest_s = np.zeros(len(self.iteration))
        np.maximum.at(self.slowest_s, place, busy)

    def mean(self, first: int, last: int) -> float | None:
        """Mean over the iterations ``[first, last)``."""
        found = self.mean_s[(self.iteration >= first) & (self.iteration < last)]
        return float(found.mean()) if len(found) else None

    def slowest(self, iteration: int) -> float | None:
        """The busy time of the slowest worker in one iteration."""
        found = self.slowest_s[self.iteration == iteration]
        return float(found[0]) if len(found) else None


def _effect(row: Decision, at: int, table: Lengths, decided: Sequence[int]) -> Effect:
    earlier = max((other for other in decided if other < at), default=0)
    later = min((other for other in decided if other > at), default=at + AROUND)
    return Effect(
        before_s=table.mean(max(at - AROUND, earlier), at),
        after_s=table.mean(at, min(at + AROUND, later)),
        predicted_s=row.payload.get("predicted_s"),
        busy_s=table.slowest(at),
    )
