"""The samples of one iteration, as this worker's sampler gives them for the task of its orders."""

from dataclasses import dataclass

import numpy as np

from controlplane.protocol.schedule import Task
from workers.trainer.sampler import Sampler
from workers.workloads.shape import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The samples of one iteration, in the order in which they should be processed."""

    position: int
    """Where in the job's permutations they begin."""
    samples: Samples
    share: int
    """How many are expected; with a budget there may be more."""
    budget_s: float | None = None
    """Stop after so long."""


def work_of(task: Task, sampler: Sampler) -> Work:
    """The samples of ``task``; they are drawn from ``sampler``, which may give none of them twice."""
    if task.pieces:
        parts = [sampler.samples(piece.start, piece.stop - piece.start) for piece in task.pieces]
        samples = np.concatenate(parts)
    else:
        samples = sampler.samples(task.position, task.most)
    return Work(position=task.position, samples=samples, share=task.share, budget_s=task.budget_s)
