"""From figures to verdicts: who is slow lastingly, who for a moment, who keeps up, of whom too little is known."""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controlplane.policies.parameters import EvidenceParameters
from controlplane.policies.stragglers.panel import Array, Rows

SPIKES = 3
"""A transient flag opens when so many iterations on end were far off."""

LEAST_ERROR = 0.02
"""Nobody is measured more exactly than this."""

MOST_SURE = 0.999

Measure = Literal["others", "own"]


class Standing(StrEnum):
    """What can be said about one rank."""

    LASTING = "lasting"
    TRANSIENT = "transient"
    KEEPS_UP = "keeps up"
    UNCLEAR = "not enough evidence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a flag stands on."""

    ratio: float
    """Median over the window, in times of the measure."""
    measure: Measure
    raised: int
    """Iterations of the window in which it was raised."""
    window: int
    confidence: float
    """That it is really slower than what counts as raised."""


def standings(rows: Rows, parameters: EvidenceParameters, waits: Collection[int] = ()) -> list[Standing]:
    """One for each rank, as if no flag were open; of those that wait for others now more evidence is asked.

    Who waits costs nothing at that moment: neither a disturbance nor what scatter alone may bring about accuses it.
    """
    lasting = _is_lasting(rows.others, parameters) | _is_lasting(rows.own, parameters)
    far = np.fmax(rows.others[-SPIKES:], rows.own[-SPIKES:]) >= math.log(parameters.spike)
    transient = np.all(far, axis=0)
    # A flag opens in an iteration in which it was slow: who waits at that moment has caught up.
    lasting &= np.fmax(rows.others[-1], rows.own[-1]) >= math.log(parameters.raised)
    if waits:
        busy = ~np.isin(rows.ranks, list(waits))
        lasting &= busy | _is_doubtless(rows.others, parameters) | _is_doubtless(rows.own, parameters)
        transient &= busy
    known = _enough(rows.others) | _enough(rows.own)
    return [
        Standing.LASTING if last else Standing.TRANSIENT if spikes else Standing.KEEPS_UP if any_ else Standing.UNCLEAR
        for last, spikes, any_ in zip(lasting, transient, known, strict=True)
    ]


def has_recovered(rows: Rows, column: int, parameters: EvidenceParameters) -> bool:
    """Whether an open flag is to close: the window was good for as long as a flag needs it to be bad."""
    worst = np.fmax(rows.others[:, column], rows.own[:, column])
    good = worst < math.log(parameters.raised)
    return bool(good.sum() >= needed(parameters))


def measured(rows: Rows, column: int) -> int:
    """In how many iterations of the window it could be compared."""
    return int((~np.isnan(np.fmax(rows.others[:, column], rows.own[:, column]))).sum())


def figures(rows: Rows, column: int, parameters: EvidenceParameters, standing: Standing | None = None) -> Figures:
    """The measure that stands on most and, of equal ones, shows most: over the iterations that told ``standing``."""
    last = SPIKES if standing is Standing.TRANSIENT else len(rows.others)
    measures: dict[Measure, Sequence[float]] = {
        "others": _values(rows.others[-last:, column]),
        "own": _values(rows.own[-last:, column]),
    }
    measure = max(measures, key=lambda name: _weight(measures[name]))
    values = measures[measure]
    bar = math.log(parameters.raised)
    return Figures(
        ratio=math.exp(statistics.median(values)),
        measure=measure,
        raised=sum(value >= bar for value in values),
        window=len(values),
        confidence=_confidence(values, bar),
    )


def needed(parameters: EvidenceParameters) -> int:
    """How many iterations of the window make it."""
    return math.ceil(parameters.persistent * parameters.window)


def _is_lasting(excess: Array, parameters: EvidenceParameters) -> NDArray[np.bool_]:
    raised = (excess >= math.log(parameters.raised)).sum(axis=0) >= needed(parameters)
    lasting: NDArray[np.bool_] = raised & _enough(excess)
    if lasting.any():
        middle = np.median(excess[:, lasting], axis=0)
        lasting[lasting] = middle >= math.log(parameters.slow)
    return lasting


def _is_doubtless(excess: Array, parameters: EvidenceParameters) -> NDArray[np.bool_]:
    """Raised without exception, and so far that a single iteration of it would be a spike."""
    without: NDArray[np.bool_] = np.all(excess >= math.log(parameters.raised), axis=0)
    if without.any():
        middle = np.median(excess[:, without], axis=0)
        without[without] = middle >= math.log(parameters.spike)
    return without


def _enough(excess: Array) -> NDArray[np.bool_]:
    whole: NDArray[np.bool_] = np.all(~np.isnan(excess), axis=0)
    return whole


def _weight(values: Sequence[float]) -> tuple[int, float]:
    return len(values), statistics.median(values) if values else -math.inf


def _values(column: Array) -> list[float]:
    return [float(value) for value in column if not math.isnan(value)]


def _confidence(values: Sequence[float], bar: float) -> float:
    """By the normal distribution, with the window's own scatter (median absolute deviation)."""
    middle = statistics.median(values)
    scatter = 1.4826 * statistics.median(abs(value - middle) for value in values)
    error = 1.2533 * max(LEAST_ERROR, scatter) / math.sqrt(len(values))
    return min(MOST_SURE, statistics.NormalDist().cdf((middle - bar) / error))
