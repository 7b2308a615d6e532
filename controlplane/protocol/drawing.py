"""Draws the workers that a barrier samples (PSP section 3.3): the control plane and workers draw identically.

A draw depends only on the job's seed, the worker, its iteration and the number of the attempt.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from controlplane.protocol.base import Count32, Value
from controlplane.protocol.chance import key, others
from controlplane.protocol.parts import Seed

MAX_RECHECK = 100.0

_FIXED, DYNAMIC = range(2)
"""Purposes of draws, so that different ones are independent."""


class PeerSampling(Value, frozen=True, kw_only=True):
    """How a worker samples its peers itself (``sampling: peers``)."""

    sample: Count32
    staleness: Count32 = 0
    """How many iterations a sampled worker may be behind."""
    fixed: bool = False
    """One subset for the whole job; otherwise a new sample each iteration."""
    held: bool = False
    """A waiting worker waits for its first sample; otherwise it draws another one."""
    recheck: Annotated[float, Meta(gt=0.0, le=MAX_RECHECK)] = 0.25
    """After how many of its own iteration times a waiting worker repeats its requests."""
    seed: Seed = 0


def chance_of(seed: int, rank: int, iteration: int, attempt: int) -> int:
    """The chance of the draw of ``rank`` before ``iteration``."""
    return key(seed, rank, iteration, attempt)


def any_others(ranks: Sequence[int], place: int, count: int, chance: int) -> list[int]:
    """``count`` of the sorted ``ranks`` without the one at ``place``, each equally likely; sorted."""
    return others(ranks, place, count, key(chance, DYNAMIC))


def fixed_order(ranks: Sequence[int], seed: int) -> list[int]:
    """The order in which the single subset of the job includes workers (section 6.5: the basic strategy)."""
    return sorted(ranks, key=lambda rank: (key(seed, _FIXED, rank), rank))


def first_others(ordered: Sequence[int], rank: int, count: int) -> list[int]:
    """The first ``count`` of ``ordered``; a worker among them samples one more instead of itself. Sorted."""
    return sorted([other for other in ordered[: count + 1] if other != rank][:count])
