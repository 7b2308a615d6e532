"""Places iterations in time by their measured durations. Pure.

A report is timestamped on arrival, after some delay. A worker's clock assigns all of its time to phases of iterations
(``workers.trainer.clock``), so within a generation each iteration ends exactly its duration after the previous one, and
a single offset places them all. A report cannot arrive before its iteration ended, so the report with the shortest
delay determines the offset; the others then show how late reports are.
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
"""Columns that ``chained`` reads besides ``iteration`` and ``generation``."""

BREAK: Final = 10
"""Reports this many iterations apart do not form a chain: those of a pruned job are means over this many iterations."""

STAMP_MS: Final = 1.0
"""Resolution of arrival times, and thus of positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The iterations of one worker in time."""

    ended_ms: NDArray[np.float64]
    """When each ended, in milliseconds since 1970; no two of them overlap."""
    late_ms: NDArray[np.float64]
    """The delay of each report; at least 0."""

    @property
    def uncertain_ms(self) -> float:
        """By how much all of them may have ended earlier: the gap between the two shortest delays."""
        return max(STAMP_MS, float(np.quantile(self.late_ms, 0.25)) if len(self.late_ms) else 0.0)


def chained(block: Block) -> Chain:
    """The iterations of a worker, from columns sorted by iteration.

    Each generation has its own offset, since a returning worker was absent for a while; it ends no later than the start
    of the next generation.
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
    """The maximum error of the time difference between two workers."""
    return max((chain.uncertain_ms for chain in chains.values()), default=STAMP_MS)


def _unbroken(block: Block) -> Sequence[slice]:
    """Slices in which each iteration directly follows the previous one."""
    if not len(block["iteration"]):
        return []
    breaks = (np.diff(block["generation"]) != 0) | (np.diff(block["iteration"]) >= BREAK)
    borders = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(block["iteration"])]
    return [slice(begin, end) for begin, end in itertools.pairwise(borders)]
