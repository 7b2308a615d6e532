"""Limits the effect of a single report on all predictors: clocks jump, and machines pause for a moment.

A speed is clipped to between half and twice a median. Underestimating a worker costs little, since others take its
samples; overestimating it makes every iteration wait. So a lasting decrease counts from its second report, by the
median of three, and an increase from its third, by the median of five: two outliers among three reports raise no
forecast further. An outlier in a worker's very first report is only detected with the third one: the worker's state is
then reset.
"""

from collections.abc import Mapping, Sequence

import msgspec

from controlplane.policies.prediction.interface import Measured

FACTOR = 2.0
"""Largest ratio of a speed to the median: machines shared with others vary by that much within an iteration."""

IMPLAUSIBLE = 10.0
"""A speed that differs from the predictors' input by this factor is ignored for scores."""

SHORT, LONG = 3, 5
"""Number of reports in the medians for the lower and the upper bound."""

Recent = Mapping[int, tuple[float, ...]]
"""The last reported speeds of each rank, the latest last."""


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
    """The median; the lower one of an even number; of two values the earlier one."""
    return last[0] if len(last) == 2 else sorted(last)[(len(last) - 1) // 2]


def is_plausible(seen: Measured, limited: Measured) -> bool:
    """Whether a report can be used to score predictors."""
    return limited.speed / IMPLAUSIBLE <= seen.speed <= limited.speed * IMPLAUSIBLE
