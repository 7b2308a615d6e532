"""How slow each worker was in one iteration, relative to the others: numbers only, no verdict.

Compute is compared per sample, since shares differ (LB-BSP gives a slow machine few samples so that nobody waits for
it). Communication is compared as it is: every worker moves the same parameters. Waiting is never compared: in a
synchronous job the workers that wait are the fast ones.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from controlplane.core.choices import Observation
from controlplane.protocol.base import Value

Kind = Literal["compute", "communication"]


class Score(Value, frozen=True, kw_only=True, array_like=True):
    """One worker's iteration in one respect, in seconds (for compute: seconds per sample)."""

    own: float
    others: float
    """Median of the others, this worker left out."""
    lost_s: float
    """What it took longer than it would have at the others' median, over the whole iteration."""
    iteration_s: float
    """Its busy time and its waiting."""

    @property
    def ratio(self) -> float:
        """How many times the others' median it took."""
        return self.own / self.others


def comparable(observations: Sequence[Observation]) -> list[Observation]:
    """Those that say something about speed: with samples, and with finite times."""
    return [
        seen
        for seen in observations
        if seen.samples > 0 and math.isfinite(seen.busy_s + seen.waiting_s) and seen.compute_s > 0
    ]


def score(kind: Kind, observations: Sequence[Observation]) -> dict[int, Score]:
    """The scores of at least two comparable observations; ranks whose others took no time at all have none."""
    units = {seen.rank: seen.samples if kind == "compute" else 1 for seen in observations}
    costs = {seen.rank: _cost(kind, seen) / units[seen.rank] for seen in observations}
    others = medians_of_others(costs)
    return {
        seen.rank: Score(
            own=costs[seen.rank],
            others=others[seen.rank],
            lost_s=(costs[seen.rank] - others[seen.rank]) * units[seen.rank],
            iteration_s=seen.busy_s + seen.waiting_s,
        )
        for seen in observations
        if others[seen.rank] > 0
    }


def medians_of_others(values: Mapping[int, float]) -> dict[int, float]:
    """For each rank the median over all other ranks; sorts once, so that a thousand workers cost a millisecond."""
    ordered = sorted(values, key=lambda rank: values[rank])
    middle, odd = divmod(len(ordered) - 1, 2)
    medians = {}
    for place, rank in enumerate(ordered):
        # Without this rank the list is one shorter: whatever stood behind it moves up by one.
        lower, upper = middle if odd else middle - 1, middle
        medians[rank] = (values[ordered[lower + (lower >= place)]] + values[ordered[upper + (upper >= place)]]) / 2
    return medians


def _cost(kind: Kind, seen: Observation) -> float:
    return seen.compute_s if kind == "compute" else seen.communication_s
