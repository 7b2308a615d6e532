"""Divides training samples among workers that keep their own: IID, or skewed."""

from collections.abc import Callable, Mapping

import numpy as np

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Division
from workers.workloads.shape import Samples, Workload


def own_samples(workload: Workload, division: Division, *, rank: int, workers: int, seed: int) -> Samples:
    """The training samples of worker ``rank``: a partition that depends only on the seed.

    Raises:
        SpecError: if the data cannot be divided in this way, or among this many workers.
    """
    count = workload.sample_count
    if count < workers:
        raise SpecError("workers", workers, f"at most {count}: the data set has no more samples to divide")
    return _DIVISIONS[division](workload, workers, np.random.default_rng(seed))[rank]


def _iid(workload: Workload, workers: int, rng: np.random.Generator) -> list[Samples]:
    """Equal parts of a permutation."""
    return np.array_split(rng.permutation(workload.sample_count), workers)


def _by_label(workload: Workload, workers: int, rng: np.random.Generator) -> list[Samples]:
    """Equal parts of the samples sorted by class: most workers get one or two classes."""
    return np.array_split(_in_order(workload, rng), workers)


def _two_shards(workload: Workload, workers: int, rng: np.random.Generator) -> list[Samples]:
    """As in FedAvg: sorted by class, cut into two shards per worker, assigned at random."""
    shards = np.array_split(_in_order(workload, rng), 2 * workers)
    hands = rng.permutation(2 * workers).reshape(workers, 2)
    return [np.concatenate([shards[first], shards[second]]) for first, second in hands]


def _by_writer(workload: Workload, workers: int, rng: np.random.Generator) -> list[Samples]:
    """Writers are assigned in turn, each with all samples that they wrote."""
    writers = workload.writers()
    if writers is None:
        raise SpecError("workload.partition", "by-writer", "iid, by-label or two-shards: the data name no writers")
    names = rng.permutation(np.unique(writers))
    if len(names) < workers:
        raise SpecError("workers", workers, f"at most {len(names)} with by-writer: so many writers the data name")
    return [np.flatnonzero(np.isin(writers, names[rank::workers])) for rank in range(workers)]


def _in_order(workload: Workload, rng: np.random.Generator) -> Samples:
    """All samples by class, in a random order within each."""
    shuffled = rng.permutation(workload.sample_count)
    return shuffled[np.argsort(workload.labels()[shuffled], kind="stable")]


_DIVISIONS: Mapping[Division, Callable[[Workload, int, np.random.Generator], list[Samples]]] = {
    "iid": _iid,
    "by-label": _by_label,
    "two-shards": _two_shards,
    "by-writer": _by_writer,
}
