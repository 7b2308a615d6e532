"""Reads which workers have acknowledged a decision, by reporting the first iteration under it."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from controlplane.jobs.models import Decision, Job
from controlplane.policies.wording import workers
from controlplane.telemetry.columns import Block
from frontend.queries.history import History, span_of
from frontend.queries.in_force import in_force

PUSHED: Final = frozenset({"set-shares", "set-roster", "change-policies"})
"""Kinds of decisions that reach workers with the orders for an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """How many workers have acknowledged one decision."""

    sent: int
    received: int
    missing: tuple[int, ...]
    """Ranks that were sent the decision and have not reported its first iteration."""
    deviating: tuple[int, ...]
    """Ranks that reported a number of samples other than their share."""
    latency_s: float | None
    """Median time from the engine's release to the arrival of the orders, as measured by the workers."""
    slowest_s: float | None
    """The maximum of the same."""
    over: bool
    """Whether the missing ranks can no longer report it."""

    @property
    def missing_in_words(self) -> str:
        """``w3 w7`` and the number of further ones."""
        return workers(self.missing)

    @property
    def deviating_in_words(self) -> str:
        """The same for deviating ranks."""
        return workers(self.deviating)


def acknowledgements(job: Job, decisions: Sequence[Decision]) -> dict[int, Acknowledgement]:
    """Acknowledgements by primary key, for decisions that are sent to workers; reads the columns once for all."""
    held = in_force(job, decisions)
    pushed = {
        row.pk: (row, held.get(row.pk, at))
        for row in decisions
        if row.kind in PUSHED and (at := holds_from(row)) is not None
    }
    if not pushed:
        return {}
    places = {at for _, at in pushed.values()}
    first, _ = span_of(places)
    table = _by_iteration(History(job).around(("samples", "coordination_s"), places), places)
    reached = job.iteration - 1
    return {
        pk: _acknowledgement(row, table.get(at, {}), over=job.is_over or at <= reached)
        for pk, (row, at) in pushed.items()
        if at >= first
    }


def holds_from(row: Decision) -> int | None:
    """The first iteration under this decision."""
    found = row.iteration if row.iteration is not None else row.payload.get("first_iteration")
    return None if found is None else int(found)


Reported = tuple[int, int, float]
"""Generation, samples and seconds of coordination of one report."""


def _by_iteration(found: Mapping[int, Block], iterations: set[int]) -> dict[int, dict[int, Reported]]:
    """The reports of each rank for each of these iterations."""
    table: dict[int, dict[int, Reported]] = {}
    for rank, block in found.items():
        there = np.isin(block["iteration"], list(iterations))
        columns = (block[name][there].tolist() for name in ("iteration", "generation", "samples", "coordination_s"))
        for iteration, *reported in zip(*columns, strict=True):
            table.setdefault(iteration, {})[rank] = (reported[0], reported[1], reported[2])
    return table


def _acknowledgement(row: Decision, reported: Mapping[int, Reported], *, over: bool) -> Acknowledgement:
    payload: dict[str, Any] = row.payload
    shares = {int(rank): share for rank, share in payload.get("shares", {}).items()}
    sent = sorted(shares or payload.get("ranks") or reported)
    received = {
        rank: reported[rank] for rank in sent if rank in reported and reported[rank][0] >= payload.get("generation", 0)
    }
    waits = [coordination_s for _, _, coordination_s in received.values()]
    return Acknowledgement(
        sent=len(sent),
        received=len(received),
        missing=tuple(rank for rank in sent if rank not in received),
        deviating=tuple(
            rank for rank, (_, samples, _) in received.items() if rank in shares and samples != shares[rank]
        ),
        latency_s=statistics.median(waits) if waits else None,
        slowest_s=max(waits, default=None),
        over=over,
    )
