"""Bounds what one report may do, in front of all predictors: clocks jump, and machines pause for a moment.

A speed counts for no more than twice, and no less than half, a median. A worker that is taken for slower leaves work
to others, which costs little; one that is taken for faster makes every iteration wait for it. So a lasting decrease
counts from its second report, by the median of three, and an increase from its third, by the median of five: two odd
reports among three move no forecast up further than that. If a worker's very first report was odd, which could not be
detected, the third one shows it: the worker's state is then reset.
"""

from collections.abc import Mapping, Sequence

import msgspec

from controlplane.policies.prediction.interface import Measured

FACTOR = 2.0
"""How far from the median a speed counts, at most: what machines with other tenants do within an iteration."""

IMPLAUSIBLE = 10.0
"""A speed this many times as far from the predictors' input is ignored."""

SHORT, LONG = 3, 5
"""Reports that the medians are of: of a speed's least and greatest value."""

Recent = Mapping[int, tuple[float, ...]]
"""The last speeds of each rank as they were reported, the latest last."""


def bounded(measured: Mapping[int, Measured], recent: Recent) -> tuple[dict[int, Measured], Recent, set[int]]:
    """The predictors' input, the new window, and the workers whose first report was odd."""
    limited: dict[int, Measured] = {}
    window = dict(recent)
    begins: set[int] = set()
    for rank, seen in measured.items():
        last = (*window.get(rank, ()), seen.speed)[-LONG:]
        window[rank] = last
        usual = _middle(last)
        least, most = min(_middle(last[-SHORT:]), usual) / FACTOR, usual * FACTOR
        speed = min(max(seen.speed, least), most)
        limited[rank] = seen if speed == seen.speed else msgspec.structs.replace(seen, speed=speed)
        if len(last) == SHORT and not least <= last[0] <= most:
            begins.add(rank)
    return limited, window, begins


def _middle(last: Sequence[float]) -> float:
    """The median; of an even number the lower one, of two the one before: nothing else tells which is odd."""
    return last[0] if len(last) == 2 else sorted(last)[(len(last) - 1) // 2]


def is_plausible(seen: Measured, limited: Measured) -> bool:
    """Whether a report can be used to score predictors: impossible values cannot."""
    return limited.speed / IMPLAUSIBLE <= seen.speed <= limited.speed * IMPLAUSIBLE
