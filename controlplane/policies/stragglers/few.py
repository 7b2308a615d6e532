"""One iteration of a few workers, in plain floats; ``many`` gives the same figures, by array operations."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from math import expm1, inf, log, nan

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


def measure(past: Past, row: Row, worth: Worth) -> New:
    """The figures of ``row``, and what is usual with the iteration that leaves the window."""
    usual, counted = array("f", past.usual), array("f", past.counted)
    if past.leaving:
        _learn(usual, counted, array("f", past.leaving), past.flagged)
    costs = [
        log(cost) if 0.0 < (cost := seconds / units) < inf else nan
        for seconds, units in zip(row.seconds, row.units, strict=True)
    ]
    above_usual = [
        cost - before if count >= KNOWN else nan for cost, before, count in zip(costs, usual, counted, strict=True)
    ]
    return New(
        costs=array("f", costs).tobytes(),
        others=array("f", _excesses(costs, row, worth, least=COMPARED - 1)).tobytes(),
        own=array("f", _excesses(above_usual, row, worth, least=1)).tobytes(),
        usual=usual.tobytes(),
        counted=counted.tobytes(),
        unmeasured=[column for column, cost in enumerate(costs) if cost != cost],
    )


def raised(others: bytes, own: bytes, bar: float) -> Iterable[int]:
    """The columns in which either is at least ``bar``."""
    both = zip(array("f", others), array("f", own), strict=True)
    return [column for column, (one, other) in enumerate(both) if one >= bar or other >= bar]


def medians_of_others(values: Sequence[float], *, least: int) -> tuple[float, float] | None:
    """The median of all other ones that are not NaN: of an entry up to the first figure the second, else the first.

    Nothing where there are fewer than ``least`` others. Of an even number of others the upper middle one: where two
    disagree, nobody is slow by the faster one alone.
    """
    ordered = sorted([value for value in values if value == value])
    left = len(ordered) - 1
    if left < max(1, least):
        return None
    # Without the entry itself the list is one shorter: whatever stood behind it moves up by one.
    return ordered[left // 2], ordered[left // 2 + 1]


def _excesses(values: list[float], row: Row, worth: Worth, *, least: int) -> list[float]:
    medians = medians_of_others(values, least=least)
    if medians is None:
        return [nan] * len(values)
    low, high = medians
    excesses = [value - (high if value <= low else low) for value in values]
    for column, excess in enumerate(excesses):
        if excess > NOT_WORTH:
            lost_s = row.seconds[column] * -expm1(-excess)
            if not lost_s >= max(worth.least_s, worth.part * row.iteration_s[column]):
                excesses[column] = NOT_WORTH
    return excesses


def _learn(usual: "array[float]", counted: "array[float]", leaving: "array[float]", flagged: Collection[int]) -> None:
    for column, cost in enumerate(leaving):
        if cost != cost:
            continue
        count, before = counted[column], usual[column]
        if count > 0:
            pace = PACE_WHILE_OPEN if column in flagged else max(PACE, 1.0 / (count + 1.0))
            usual[column] = before + pace * max(-JUMP, min(JUMP, cost - before))
        else:
            usual[column] = cost
        counted[column] = count + 1.0
