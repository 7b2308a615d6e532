"""From figures to verdicts: which workers are slow permanently or temporarily, and which cannot be judged."""

import math
import statistics
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal

from controlplane.policies.catalogue.stragglers import EvidenceParameters
from controlplane.policies.stragglers.panel import Column

SPIKES = 3
"""A transient flag opens after this many iterations in a row that were far off."""

LEAST_ERROR = 0.02
"""The lower bound of the measurement error."""

MOST_SURE = 0.999

Measure = Literal["others", "own"]


class Persistence(StrEnum):
    """The verdict about one rank."""

    LASTING = "lasting"
    TRANSIENT = "transient"
    KEEPS_UP = "keeps up"
    UNCLEAR = "not enough evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The evidence for a flag."""

    ratio: float
    """Median over the window of the ratio to the reference."""
    measure: Measure
    raised: int
    """Iterations of the window in which it was slow."""
    window: int
    confidence: float
    """Confidence that it is slower than the threshold ``raised``."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Thresholds of the excess (logarithms), rounded like the figures that are compared with them."""

    raised: float
    slow: float
    spike: float


@cache
def bars(parameters: EvidenceParameters) -> Bars:
    """The thresholds for these parameters."""
    return Bars(*array("f", map(math.log, (parameters.raised, parameters.slow, parameters.spike))))


def lowest_bar(parameters: EvidenceParameters) -> float:
    """A worker below this in both measures in the latest iteration is neither lastingly nor transiently slow."""
    return min(bars(parameters).raised, bars(parameters).spike)


def persistence_of(column: Column, parameters: EvidenceParameters, *, waits: bool = False) -> Persistence:
    """The verdict about one rank, regardless of open flags; a rank that waits for others now needs more evidence.

    A waiting rank costs nothing at that moment, so neither a disturbance nor scatter may flag it.
    """
    others, own, bar = column.others, column.own, bars(parameters)
    # A flag opens only in an iteration in which the rank was slow: a rank that waits has caught up.
    if others and (others[-1] >= bar.raised or own[-1] >= bar.raised):
        lasting = _is_lasting(others, parameters) or _is_lasting(own, parameters)
        if lasting and (not waits or _is_doubtless(others, parameters) or _is_doubtless(own, parameters)):
            return Persistence.LASTING
    far = zip(others[-SPIKES:], own[-SPIKES:], strict=True)
    if not waits and len(others) >= SPIKES and all(one >= bar.spike or other >= bar.spike for one, other in far):
        return Persistence.TRANSIENT
    if _enough(others, parameters) or _enough(own, parameters):
        return Persistence.KEEPS_UP
    return Persistence.UNCLEAR


def has_recovered(column: Column, parameters: EvidenceParameters) -> bool:
    """Whether an open flag should close: as many iterations were good as must be bad to open it."""
    bar = bars(parameters).raised
    good = sum(
        not (one >= bar or other >= bar)
        for one, other in zip(column.others, column.own, strict=True)
        if one == one or other == other
    )
    return good >= needed(parameters)


def measured(column: Column) -> int:
    """The number of iterations of the window in which it could be compared."""
    return sum(one == one or other == other for one, other in zip(column.others, column.own, strict=True))


def figures(column: Column, parameters: EvidenceParameters, persistence: Persistence | None = None) -> Figures:
    """Figures of the measure with the most evidence and, of equal ones, the largest, over the iterations of
    ``persistence``.
    """
    last = SPIKES if persistence is Persistence.TRANSIENT else len(column.others)
    measures: dict[Measure, Sequence[float]] = {
        "others": _values(column.others[-last:]),
        "own": _values(column.own[-last:]),
    }
    measure = max(measures, key=lambda name: _weight(measures[name]))
    values = measures[measure]
    bar = bars(parameters).raised
    return Figures(
        ratio=math.exp(statistics.median(values)),
        measure=measure,
        raised=sum(value >= bar for value in values),
        window=len(values),
        confidence=_confidence(values, bar),
    )


def needed(parameters: EvidenceParameters) -> int:
    """The number of slow iterations that a persistent flag needs."""
    return math.ceil(parameters.persistent * parameters.window)


def _is_lasting(excess: Sequence[float], parameters: EvidenceParameters) -> bool:
    bar = bars(parameters)
    return (
        sum(value >= bar.raised for value in excess) >= needed(parameters)
        and _enough(excess, parameters)
        and statistics.median(excess) >= bar.slow
    )


def _is_doubtless(excess: Sequence[float], parameters: EvidenceParameters) -> bool:
    """Slow in all iterations, and each by at least the threshold of a spike."""
    bar = bars(parameters)
    return (
        len(excess) == parameters.window
        and all(value >= bar.raised for value in excess)
        and statistics.median(excess) >= bar.spike
    )


def _enough(excess: Sequence[float], parameters: EvidenceParameters) -> bool:
    return len(excess) == parameters.window and not any(map(math.isnan, excess))


def _weight(values: Sequence[float]) -> tuple[int, float]:
    return len(values), statistics.median(values) if values else -math.inf


def _values(excess: Sequence[float]) -> list[float]:
    return [value for value in excess if not math.isnan(value)]


def _confidence(values: Sequence[float], bar: float) -> float:
    """By the normal distribution, with the window's own scatter (median absolute deviation)."""
    middle = statistics.median(values)
    scatter = 1.4826 * statistics.median(abs(value - middle) for value in values)
    error = 1.2533 * max(LEAST_ERROR, scatter) / math.sqrt(len(values))
    return min(MOST_SURE, statistics.NormalDist().cdf((middle - bar) / error))
