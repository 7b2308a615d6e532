"""Who has taken up what was pushed: a worker's report of the iteration from which a change holds acknowledges it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from controlplane.jobs.models import Decision, Job
from controlplane.policies.wording import workers
from controlplane.telemetry.columns import Block
from controlplane.telemetry.history import read_columns
from frontend.queries.effects import newest

PUSHED: Final = frozenset({"set-shares", "set-roster", "change-policies"})
"""Kinds of decisions that reach workers with the orders for an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How far one decision has come."""

    told: int
    took: int
    missing: tuple[int, ...]
    """Ranks that were told and have not reported the iteration from which it holds."""
    otherwise: tuple[int, ...]
    """Ranks that reported it with another number of samples than their share."""
    latency_s: float | None
    """From the engine's release to the orders' arrival, as the workers measured it: median,"""
    slowest_s: float | None
    """and the longest."""
    over: bool
    """Whether those that are missing will not report it any more."""

    @property
    def told_missing(self) -> str:
        """``w3 w7``, and how many more."""
        return workers(self.missing)

    @property
    def told_otherwise(self) -> str:
        """The same of those that did another number."""
        return workers(self.otherwise)


def taken(job: Job, decisions: Sequence[Decision]) -> dict[int, Taken]:
    """By primary key, of those that were pushed; one read of columns for all of them."""
    pushed = {row.pk: (row, at) for row in decisions if row.kind in PUSHED and (at := holds_from(row)) is not None}
    if not pushed:
        return {}
    places = {at for _, at in pushed.values()}
    span = newest(places)
    table = _by_iteration(read_columns(job.pk, ("samples", "coordination_s"), span), places)
    reached = job.iteration - 1
    return {
        pk: _taken(row, table.get(at, {}), over=job.is_over or at <= reached)
        for pk, (row, at) in pushed.items()
        if at >= span.first
    }


def holds_from(row: Decision) -> int | None:
    """The first iteration that goes by this decision."""
    found = row.iteration if row.iteration is not None else row.payload.get("first_iteration")
    return None if found is None else int(found)


Said = tuple[int, int, float]
"""Generation, samples and seconds of coordination of one report."""


def _by_iteration(found: Mapping[int, Block], wanted: set[int]) -> dict[int, dict[int, Said]]:
    """What each rank reported of each of these iterations."""
    table: dict[int, dict[int, Said]] = {}
    for rank, block in found.items():
        there = np.isin(block["iteration"], list(wanted))
        columns = (block[name][there].tolist() for name in ("iteration", "generation", "samples", "coordination_s"))
        for iteration, *said in zip(*columns, strict=True):
            table.setdefault(iteration, {})[rank] = (said[0], said[1], said[2])
    return table


def _taken(row: Decision, said: Mapping[int, Said], *, over: bool) -> Taken:
    payload: dict[str, Any] = row.payload
    shares = {int(rank): share for rank, share in payload.get("shares", {}).items()}
    told = sorted(shares or payload.get("ranks") or said)
    took = {rank: said[rank] for rank in told if rank in said and said[rank][0] >= payload.get("generation", 0)}
    waits = [coordination_s for _, _, coordination_s in took.values()]
    return Taken(
        told=len(told),
        took=len(took),
        missing=tuple(rank for rank in told if rank not in took),
        otherwise=tuple(rank for rank, (_, samples, _) in took.items() if rank in shares and samples != shares[rank]),
        latency_s=statistics.median(waits) if waits else None,
        slowest_s=max(waits, default=None),
        over=over,
    )
