"""One iteration of many workers, by array operations; ``few`` gives the same figures, in plain floats."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.policies.stragglers.measuring import (
    COMPARED,
    JUMP,
    KNOWN,
    NOT_WORTH,
    PACE,
    PACE_WHILE_OPEN,
    New,
    Past,
    Row,
    Worth,
)

Array = NDArray[np.float64]


def measure(past: Past, row: Row, worth: Worth) -> New:
    """The figures of ``row``, and what is usual with the iteration that leaves the window."""
    usual, counted = _doubles(past.usual), _doubles(past.counted)
    if past.leaving:
        usual, counted = _learn(usual, counted, _doubles(past.leaving), list(past.flagged))
    seconds, units, iteration_s = np.array(row.seconds), np.array(row.units), np.array(row.iteration_s)
    needed_s = np.maximum(worth.least_s, worth.part * iteration_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.log(seconds / units)
    unmeasured = np.flatnonzero(~np.isfinite(costs))
    costs[unmeasured] = np.nan
    above_usual = np.where(counted >= KNOWN, costs - usual, np.nan)
    return New(
        costs=_floats(costs),
        others=_floats(_excesses(costs, seconds, needed_s, least=COMPARED - 1)),
        own=_floats(_excesses(above_usual, seconds, needed_s, least=1)),
        usual=_floats(usual),
        counted=_floats(counted),
        unmeasured=unmeasured.tolist(),
    )


def raised(others: bytes, own: bytes, bar: float) -> Iterable[int]:
    """The columns in which either is at least ``bar``."""
    latest = np.fmax(np.frombuffer(others, np.float32), np.frombuffer(own, np.float32))
    columns: list[int] = np.flatnonzero(latest >= np.float32(bar)).tolist()
    return columns


def medians_of_others(values: Array, *, least: int) -> tuple[float, float] | None:
    """As that of ``few``."""
    valid = values[~np.isnan(values)]
    left = len(valid) - 1
    if left < max(1, least):
        return None
    low, high = np.partition(valid, (left // 2, left // 2 + 1))[left // 2 : left // 2 + 2]
    return float(low), float(high)


def _excesses(values: Array, seconds: Array, needed_s: Array, *, least: int) -> Array:
    medians = medians_of_others(values, least=least)
    if medians is None:
        return np.full(values.shape, np.nan)
    low, high = medians
    excesses: Array = values - np.where(values <= low, high, low)
    high_ones = np.flatnonzero(excesses > NOT_WORTH)
    lost_s = seconds[high_ones] * -np.expm1(-excesses[high_ones])
    excesses[high_ones[~(lost_s >= needed_s[high_ones])]] = NOT_WORTH
    return excesses


def _learn(usual: Array, counted: Array, leaving: Array, flagged: list[int]) -> tuple[Array, Array]:
    here = ~np.isnan(leaving)
    pace = np.maximum(PACE, 1.0 / (counted + 1.0))
    pace[flagged] = PACE_WHILE_OPEN
    moved = usual + pace * np.clip(leaving - usual, -JUMP, JUMP)
    learnt = np.where(here, np.where(counted > 0, moved, leaving), usual)
    # What is kept is float32, and what is measured by it must not differ after a snapshot.
    return learnt.astype(np.float32).astype(np.float64), counted + here


def _doubles(of: bytes) -> Array:
    return np.frombuffer(of, np.float32).astype(np.float64)


def _floats(of: NDArray[Any]) -> bytes:
    return of.astype(np.float32).tobytes()
