"""Bounds what one report may do, in front of all predictors: clocks jump, and machines pause for a moment.

A speed counts for no more than twice, and no less than half, the median of itself and the two before it. A lasting
change counts from the second report of it; one odd report moves no forecast further than that. If it was a worker's
very first, which could not be detected, the third one shows it: the worker's state is then reset.
"""

from collections.abc import Mapping

import msgspec

from controlplane.policies.prediction.interface import Measured

FACTOR = 2.0
"""How far from the median a speed counts, at most: what machines with other tenants do within an iteration."""

IMPLAUSIBLE = 10.0
"""A speed this many times as far from the predictors' input is ignored."""

WINDOW = 3
"""Reports that the median is of."""

Recent = Mapping[int, tuple[float, ...]]
"""The last speeds of each rank as they were reported, the latest last."""


def bounded(measured: Mapping[int, Measured], recent: Recent) -> tuple[dict[int, Measured], Recent, set[int]]:
    """The predictors' input, the new window, and the workers whose first report was odd."""
    limited: dict[int, Measured] = {}
    window = dict(recent)
    begins: set[int] = set()
    for rank, seen in measured.items():
        last = (*window.get(rank, ()), seen.speed)[-WINDOW:]
        window[rank] = last
        # Of two, the one before: there is nothing else to hold the new one against.
        middle = sorted(last)[1] if len(last) == WINDOW else last[0]
        if middle / FACTOR <= seen.speed <= middle * FACTOR:
            limited[rank] = seen
        else:
            speed = min(max(seen.speed, middle / FACTOR), middle * FACTOR)
            limited[rank] = msgspec.structs.replace(seen, speed=speed)
        first = recent.get(rank, ())
        if len(first) == WINDOW - 1 and not middle / FACTOR <= first[0] <= middle * FACTOR:
            begins.add(rank)
    return limited, window, begins


def is_plausible(seen: Measured, limited: Measured) -> bool:
    """Whether a report can be used to score predictors: impossible values cannot."""
    return limited.speed / IMPLAUSIBLE <= seen.speed <= limited.speed * IMPLAUSIBLE
