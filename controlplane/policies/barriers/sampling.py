"""Which workers a worker is compared with before it continues (PSP section 3.3): a sample of the *other* workers
(ruling 22).

- ``dynamic``: drawn at each barrier, all other workers with equal probability;
- ``fixed``: one subset of the job, drawn once (section 6.5: the basic strategy); a worker in the subset uses one more
instead of itself;
- ``grouped``: as ``dynamic``, but half from the slow and half from the fast workers, separated by K-means on their
times per
  iteration, or by a given threshold.

A draw depends only on the job's seed, the worker, its iteration and the number of the attempt.
"""

import itertools
from collections.abc import Sequence

import msgspec

from controlplane.policies.barriers.draws import places
from controlplane.policies.catalogue.barriers import SampleParameters
from controlplane.protocol.chance import key, others
from controlplane.protocol.drawing import chance_of, first_others, fixed_order

_FAST, _SLOW = range(2, 4)
"""Purposes of random draws, so that no two use the same random numbers; others are in ``protocol.drawing``.
"""

SMOOTHING = 0.2
"""Weight of the newest iteration in a worker's time per iteration."""


class Population(msgspec.Struct, kw_only=True):
    """The workers that can be sampled."""

    seed: int
    ranks: list[int]
    """Sorted; for the strategy ``fixed``, in the order in which they are sampled."""
    place: dict[int, int]
    """The index of each rank in its list: of ``ranks``, or of its group."""
    busy_s: dict[int, float] = {}
    """Smoothed busy time per iteration."""
    fast: list[int] = []
    slow: list[int] = []
    slow_from_s: float | None = None
    """The time that separates the groups; None without groups: with another strategy, or before the first times."""
    ungrouped: int = 0
    """Reports since the workers were last grouped."""

    @property
    def others(self) -> int:
        """How many other workers a worker can sample."""
        return len(self.ranks) - 1


def populate(ranks: Sequence[int], seed: int, parameters: SampleParameters, before: Population | None) -> Population:
    """The population of a generation; times per iteration are kept from ``before``, the previous one."""
    listed = sorted(ranks)
    if parameters.strategy == "fixed":
        listed = fixed_order(listed, seed)
    known = before.busy_s if before is not None else {}
    population = Population(
        seed=seed,
        ranks=listed,
        place={rank: at for at, rank in enumerate(listed)},
        busy_s={rank: known[rank] for rank in listed if rank in known},
    )
    if parameters.strategy == "grouped":
        _group(population, parameters)
    return population


def measure(population: Population, rank: int, busy_s: float, parameters: SampleParameters) -> None:
    """Record how long an iteration took; workers are regrouped once per round, so that a report stays cheap."""
    known = population.busy_s.get(rank)
    population.busy_s[rank] = busy_s if known is None else known + (busy_s - known) * SMOOTHING
    if parameters.strategy != "grouped":
        return
    population.ungrouped += 1
    if population.ungrouped >= len(population.ranks):
        _group(population, parameters)


def sample(population: Population, parameters: SampleParameters, rank: int, iteration: int, attempt: int) -> list[int]:
    """The workers that ``rank`` samples at the given attempt before it starts ``iteration``; sorted."""
    ranks, count = population.ranks, parameters.sample
    size = len(ranks) - 1
    if count >= size:
        return [other for other in sorted(ranks) if other != rank]
    if parameters.strategy == "fixed":
        return first_others(ranks, rank, count)
    attempt = attempt if parameters.resample == "redrawn" else 0
    if population.slow_from_s is not None:
        chance = chance_of(population.seed, rank, iteration, attempt)
        return sorted(_from_groups(population, rank, count, chance))
    own = population.place[rank]
    drawn = places(size, count, population.seed, rank, iteration, attempt)
    return [ranks[place + (place >= own)] for place in drawn]


def split_by_means(times: Sequence[float]) -> float | None:
    """Where K-means with two clusters splits ``times``: the least of the upper cluster; None if all are equal.

    In one dimension the clusters are two runs of the sorted times, so the best split is found in one pass, without a
    random start (the sum of squares is least where n m (mean - mean')^2 / (n + m) is greatest).
    """
    ordered = sorted(times)
    if not ordered or ordered[0] == ordered[-1]:
        return None
    total, size = sum(ordered), len(ordered)
    best, split = -1.0, ordered[-1]
    for below, lower in enumerate(itertools.accumulate(ordered[:-1]), start=1):
        above = size - below
        apart = (total - lower) / above - lower / below
        between = below * above * apart * apart
        if between > best and ordered[below] > ordered[below - 1]:
            best, split = between, ordered[below]
    return split


def _group(population: Population, parameters: SampleParameters) -> None:
    population.ungrouped = 0
    times = population.busy_s
    split = parameters.threshold_s if parameters.threshold_s is not None else split_by_means(list(times.values()))
    population.slow_from_s = split
    if split is None:
        population.place = {rank: at for at, rank in enumerate(population.ranks)}
        return
    # A worker that has not reported yet counts as fast.
    population.slow = [rank for rank in population.ranks if times.get(rank, 0.0) >= split]
    population.fast = [rank for rank in population.ranks if times.get(rank, 0.0) < split]
    population.place = {rank: at for group in (population.slow, population.fast) for at, rank in enumerate(group)}


def _from_groups(population: Population, rank: int, count: int, chance: int) -> list[int]:
    """Equal numbers from both groups; if one has too few, the rest comes from the other."""
    slow, fast, at = population.slow, population.fast, population.place[rank]
    own = slow if at < len(slow) and slow[at] == rank else fast
    at_slow, at_fast = (at, None) if own is slow else (None, at)
    free_slow, free_fast = len(slow) - (own is slow), len(fast) - (own is fast)
    from_slow = min(max(count // 2, count - free_fast), free_slow)
    return others(slow, at_slow, from_slow, key(chance, _SLOW)) + others(
        fast, at_fast, count - from_slow, key(chance, _FAST)
    )
