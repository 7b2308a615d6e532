"""Computes staleness: how many iterations workers are ahead of the slowest."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controlplane.core.barriers import is_full
from controlplane.jobs.models import Job
from controlplane.jobs.selectors import job_synchronization
from controlplane.jobs.stored_specs import stored_spec
from controlplane.policies import registry
from controlplane.protocol.spec import Choice
from controlplane.telemetry.columns import Block
from controlplane.telemetry.metrics import BUSY
from frontend.figures.rows import Lead, Leads, View
from frontend.queries.chaining import NEEDED, chained
from frontend.queries.figures import elapsed, ranks_of
from frontend.queries.history import History

STALENESS_POINTS = 8_000
"""Number of last reports, over all workers, from which staleness is computed."""

MAX_RANKS = 512
ALONE = "Not applicable: the job has a single worker."
NOT_YET = "No data yet: staleness appears after the first iterations reported by two workers."


def leads(job: Job, view: View) -> Leads:
    """The staleness of the selected workers, relative to all."""
    spec, barrier = stored_spec(job), job_synchronization(job).barrier
    here, _ = _last_roster(job, range(min(spec.workers, MAX_RANKS)))
    ahead = ahead_of(here, barrier)
    found = tuple(
        Lead(
            rank=rank,
            label=f"w{rank}",
            iteration=here[rank]["iteration"],
            elapsed_s=elapsed(job, here[rank]["at_ms"]),
            ahead=ahead[rank],
        )
        for rank in ranks_of(job, view)
        if rank in here
    )
    return Leads(
        workers=found,
        roster=spec.workers,
        batch=spec.global_batch,
        barrier=barrier.name,
        reason=ALONE if spec.workers < 2 else NOT_YET,
    )


def mean_staleness(job: Job) -> float | None:
    """Mean staleness over the workers of the last roster, as on the job's page; None if not measured."""
    ahead, _ = staleness(job, range(min(stored_spec(job).workers, MAX_RANKS)))
    means = [float(each.mean()) for each in ahead.values() if len(each)]
    return sum(means) / len(means) if means else None


def staleness(job: Job, ranks: Sequence[int]) -> tuple[dict[int, NDArray[np.int64]], int]:
    """By rank, for each of its last iterations: how many iterations it was ahead of the slowest when released.

    Only the last roster counts; a single worker, or one with pruned details, has none. Also returns the number of
    iterations.
    """
    here, recent = _last_roster(job, ranks)
    return ahead_of(here, job_synchronization(job).barrier), recent


def _last_roster(job: Job, ranks: Sequence[int]) -> tuple[dict[int, Block], int]:
    """Recent reports of each worker of the last roster, and the number of iterations; none for a single worker."""
    if len(ranks) < 2:
        return {}, 0
    recent = max(10, STALENESS_POINTS // len(ranks))
    found = History(job).latest(NEEDED, recent)
    last = max((int(block["generation"].max()) for block in found.values()), default=0)
    here = {rank: _of_generation(block, last) for rank, block in found.items()}
    here = {rank: block | {"at_ms": chained(block).ended_ms} for rank, block in here.items() if len(block["iteration"])}
    if len(here) < 2:
        return {}, 0
    return here, min(recent, job.iteration)


def _of_generation(block: Block, generation: int) -> Block:
    kept = block["generation"] == generation
    return {name: values[kept] for name, values in block.items()}


def ahead_of(blocks: Mapping[int, Block], barrier: Choice) -> dict[int, NDArray[np.int64]]:
    """By rank, for each iteration: how many iterations the slowest was behind when this worker began to pull.

    This is its own completed count minus the minimum over all workers at that time, placed by measured durations.
    Under a full barrier it is 0 by definition: the computed value would be too high, as two workers are never placed
    exactly.
    """
    if not blocks or is_full(registry.resolve("barrier", barrier)):
        return {rank: np.zeros(len(block["iteration"]), dtype=np.int64) for rank, block in blocks.items()}
    done, since_ms = _done_by_all(list(blocks.values()))
    found = {}
    for rank, block in blocks.items():
        began_ms = block["at_ms"] - np.sum([block[name] for name in BUSY], axis=0) * 1000
        slowest = done[np.searchsorted(since_ms, began_ms, side="right") - 1]
        found[rank] = np.maximum(0, block["iteration"] - slowest)
    return found


def _done_by_all(blocks: Sequence[Block]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Increasing iteration counts, and since when all workers had completed that many; never empty."""
    done = np.unique(
        np.concatenate([part for each in blocks for part in (each["iteration"][:1], each["iteration"] + 1)])
    )
    since_ms = np.full(len(done), -np.inf)
    for each in blocks:
        reached_ms = np.append(each["at_ms"], np.inf)[np.searchsorted(each["iteration"] + 1, done)]
        reached_ms[done <= each["iteration"][0]] = -np.inf
        since_ms = np.maximum(since_ms, reached_ms)
    return done, since_ms
