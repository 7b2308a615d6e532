"""When iterations ended, by their measured durations. Pure.

A report is dated when it arrives, and is delayed on its way. A worker's clock assigns every moment to a
part of some iteration (``workers.trainer.clock``), so within one generation each iteration ends exactly its duration
after the one before: one unknown shift places them all. A report cannot arrive before its iteration ended, so the
report with the shortest delay gives that shift, and the others show how late reports are.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controlplane.telemetry.columns import Block
from controlplane.telemetry.metrics import ITERATION

NEEDED: Final = ("at_ms", *ITERATION)
"""Columns that ``chained`` reads, beside ``iteration`` and ``generation``."""

BREAK: Final = 10
"""Reports this many iterations apart are no chain: those of a pruned job are means over that many."""

STAMP_MS: Final = 1.0
"""Arrivals are dated to the millisecond: positions are no more exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The iterations of one worker in time."""

    ended_ms: NDArray[np.float64]
    """When each ended, in milliseconds since 1970; no two of them overlap."""
    late_ms: NDArray[np.float64]
    """How much later each one's report arrived; at least 0."""

    @property
    def uncertain_ms(self) -> float:
        """By how much all of them may have ended earlier: the distance between the quickest reports."""
        return max(STAMP_MS, float(np.quantile(self.late_ms, 0.25)) if len(self.late_ms) else 0.0)


def chained(block: Block) -> Chain:
    """The iterations of a worker, from columns by rising iteration.

    Each generation is placed by its own quickest report, since a worker that returns was away for a while;
    and no later than the start of the next generation.
    """
    whole_ms = 1000 * np.sum([block[name] for name in ITERATION], axis=0)
    run_ms, at_ms = np.cumsum(whole_ms), block["at_ms"].astype(np.float64)
    shift_ms, ceiling = np.empty(len(at_ms)), np.inf
    for part in reversed(_unbroken(block)):
        ceiling = min(ceiling, float((at_ms[part] - run_ms[part]).min()))
        shift_ms[part] = ceiling
    ended_ms = run_ms + shift_ms
    return Chain(ended_ms=ended_ms, late_ms=at_ms - ended_ms)


def uncertainty_ms(chains: Mapping[int, Chain]) -> float:
    """The largest possible error of the time between two workers."""
    return max((chain.uncertain_ms for chain in chains.values()), default=STAMP_MS)


def _unbroken(block: Block) -> Sequence[slice]:
    """Stretches in which each iteration follows the previous one."""
    if not len(block["iteration"]):
        return []
    breaks = (np.diff(block["generation"]) != 0) | (np.diff(block["iteration"]) >= BREAK)
    borders = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(block["iteration"])]
    return [slice(begin, end) for begin, end in itertools.pairwise(borders)]
