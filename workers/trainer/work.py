"""The samples of one iteration, drawn from this worker's sampler for the task of its orders."""

from dataclasses import dataclass

import numpy as np

from controlplane.protocol.schedule import Task
from workers.trainer.sampler import Sampler
from workers.workloads.shape import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The samples of one iteration, in the order of processing."""

    position: int
    """Offset in the job's permutations."""
    samples: Samples
    share: int
    """Number of samples expected; with a time budget there may be more."""
    budget_s: float | None = None
    """Stop after this time."""


def work_of(task: Task, sampler: Sampler) -> Work:
    """The samples of ``task``, drawn from ``sampler``, which may return none of them twice."""
    if task.pieces:
        parts = [sampler.samples(piece.start, piece.stop - piece.start) for piece in task.pieces]
        samples = np.concatenate(parts)
    else:
        samples = sampler.samples(task.position, task.most)
    return Work(position=task.position, samples=samples, share=task.share, budget_s=task.budget_s)
