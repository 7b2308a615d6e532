"""Reads a few single iterations of some workers, for the timeline and its totals."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from controlplane.jobs.models import Job
from controlplane.jobs.stored_specs import stored_spec
from controlplane.telemetry.columns import Block
from controlplane.telemetry.metrics import ITERATION
from frontend.figures.rows import View, Window, WorkerIteration
from frontend.queries.chaining import NEEDED, Chain, chained, uncertainty_ms
from frontend.queries.figures import slowest_and_fastest
from frontend.queries.history import History

ITERATIONS = 10
MAX_ITERATIONS = 20
"""With 16 workers and six phases, a redraw takes less than 50 ms."""

AROUND: Final = 40
"""Iterations before and after the window whose reports are used to place it in time."""


def window(job: Job, view: View) -> Window:
    """The requested iterations, or the latest; clamped to those that exist."""
    roster = stored_spec(job).workers
    history = History(job)
    newest = history.newest
    if newest is None:
        return Window(spans=(), ranks=(), roster=roster, first=0, last=0, newest=0)
    count = min(view.count or ITERATIONS, MAX_ITERATIONS)
    latest = max(0, newest - count + 1)
    first = latest if view.first is None else min(view.first, latest)
    ranks = view.ranks or slowest_and_fastest(job, roster)
    placed = {"first": first - AROUND, "last": first + count + AROUND}
    found = history.columns((*NEEDED, "samples"), ranks=ranks, **placed)
    chains = {rank: chained(block) for rank, block in found.items()}
    spans = tuple(
        span
        for rank in sorted(found)
        for span in _spans(job, rank, found[rank], chains[rank])
        if first <= span.iteration < first + count
    )
    return Window(
        spans=spans,
        ranks=tuple(sorted({span.rank for span in spans})),
        roster=roster,
        first=first,
        last=min(newest, first + count - 1),
        newest=newest,
        uncertain_s=uncertainty_ms(chains) / 1000,
        late_s=max((float(np.quantile(chain.late_ms, 0.95)) for chain in chains.values()), default=0.0) / 1000,
    )


def _spans(job: Job, rank: int, block: Block, chain: Chain) -> Iterator[WorkerIteration]:
    started_s = (job.started_at or job.created_at).timestamp()
    names = ("iteration", "samples", *ITERATION)
    for row in zip(chain.ended_ms.tolist(), *(block[name].tolist() for name in names), strict=True):
        ended_ms, iteration, samples, data_s, compute_s, push_s, pull_s, waiting_s, coordination_s = row
        yield WorkerIteration(
            rank=rank,
            iteration=iteration,
            ended_s=ended_ms / 1000 - started_s,
            data_s=data_s,
            compute_s=compute_s,
            push_s=push_s,
            pull_s=pull_s,
            waiting_s=waiting_s,
            coordination_s=coordination_s,
            samples=samples,
        )
