"""Maps positions to samples: a seeded permutation per pass over the data, the same on every worker.

Position ``p`` is element ``p mod N`` of the permutation of pass ``p div N``. Orders assign ranges of positions, so any
division of an iteration over the workers uses the same samples, and a repeated iteration uses them again.
``work_of`` draws those of one iteration.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from controlplane.protocol.schedule import Task
from controlplane.protocol.spec import JobSpec
from workers.workloads.partitions import own_samples
from workers.workloads.shape import Samples, Workload


class PermutationSampler:
    """The endless sequence of samples of one job."""

    own_samples = 0
    """Every worker may draw any sample."""

    def __init__(self, *, seed: int, sample_count: int) -> None:
        self.sample_count = sample_count
        self._seed = seed
        self._pass = lru_cache(maxsize=4)(self._permutation)

    def samples(self, position: int, count: int) -> Samples:
        """Indices of the ``count`` samples from ``position`` on; a range may cross passes."""
        parts = [np.empty(0, dtype=np.int64)]
        end = position + count
        while position < end:
            number, begin = divmod(position, self.sample_count)
            part = self._pass(number)[begin : begin + end - position]
            parts.append(part)
            position += len(part)
        return np.concatenate(parts)

    def put_back(self, count: int) -> None:
        """The last ``count`` of them were not processed; orders determine which are next."""

    def _permutation(self, number: int) -> Samples:
        return np.random.default_rng([self._seed, number]).permutation(self.sample_count)


class OwnSampler:
    """The samples of one worker that keeps its own: consecutive permutations of them.

    Positions of the whole job only determine where a new process starts.
    """

    def __init__(self, own: Samples, *, seed: int, workers: int) -> None:
        self._own, self._workers = own, workers
        self.own_samples = len(own)
        self._order = PermutationSampler(seed=seed, sample_count=len(own))
        self._stopped: int | None = None

    def samples(self, position: int, count: int) -> Samples:
        """Indices of the next ``count`` of its samples."""
        begin = position // self._workers if self._stopped is None else self._stopped
        self._stopped = begin + count
        return self._own[self._order.samples(begin, count)]

    def put_back(self, count: int) -> None:
        """The last ``count`` of them were not processed: they are the next ones."""
        if self._stopped is not None:
            self._stopped -= count


Sampler = PermutationSampler | OwnSampler


def make_sampler(workload: Workload, spec: JobSpec, rank: int) -> Sampler:
    """The samples that worker ``rank`` of the job may draw.

    Raises:
        SpecError: if the data cannot be divided as the job specifies.
    """
    division = spec.division
    if division is None:
        return PermutationSampler(seed=spec.seed, sample_count=workload.sample_count)
    own = own_samples(workload, division, rank=rank, workers=spec.workers, seed=spec.seed)
    return OwnSampler(own, seed=spec.seed, workers=spec.workers)


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
