"""Measures one iteration: how slow each rank was compared with the others' median and with its own past.

It uses plain floats: arrays would cost more for few ranks, and save 0.6 us per rank with a thousand.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import expm1, inf, log, nan
from typing import Final

COMPARED: Final = 3
"""Smallest number of others to compare with: of two different values either may be the outlier."""

KNOWN: Final = 5
"""Iterations after which a worker's own past is evidence."""

PACE, PACE_WHILE_OPEN = 0.05, 0.005
"""Long-run weight of one more iteration in the usual values."""

JUMP: Final = 0.2
"""Deviations are clipped at this value before they change the usual values, so that a spike does not become usual."""

Columns = Sequence[int]

NOT_WORTH: Final = 0.1
"""Upper bound of an excess in an iteration in which the time lost is negligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One iteration: for each rank its time in seconds, its work, and the length of its iteration."""

    ranks: list[int]
    """Ascending."""
    seconds: list[float]
    units: list[float]
    iteration_s: list[float]

    def for_ranks(self, ranks: list[int]) -> "Row":
        """The same for these ranks; NaN for ranks that it does not contain."""
        if ranks == self.ranks:
            return self
        place = {rank: column for column, rank in enumerate(self.ranks)}

        def pick(of: list[float], fill: float) -> list[float]:
            return [of[place[rank]] if rank in place else fill for rank in ranks]

        return Row(
            ranks=ranks,
            seconds=pick(self.seconds, nan),
            units=pick(self.units, 1.0),
            iteration_s=pick(self.iteration_s, nan),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A panel's values before an iteration, as float32, one per rank."""

    leaving: bytes
    """The costs of the iteration that leaves the window; empty if none does."""
    usual: bytes
    counted: bytes
    flagged: Columns
    """Columns with an open flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """Values that an iteration adds to a panel, as float32."""

    costs: bytes
    others: bytes
    own: bytes
    usual: bytes
    counted: bytes
    unmeasured: Columns
    """Columns without a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The time lost at which an iteration counts as slow."""

    part: float
    least_s: float


def measure(past: Past, row: Row, worth: Worth) -> New:
    """The figures of ``row``, and the usual values updated by the iteration that leaves the window."""
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
    """The columns in which either measure is at least ``bar``."""
    both = zip(array("f", others), array("f", own), strict=True)
    return [column for column, (one, other) in enumerate(both) if one >= bar or other >= bar]


def medians_of_others(values: Sequence[float], *, least: int) -> tuple[float, float] | None:
    """For each value, the median of all others that are not NaN, as a pair ``(low, high)``.

    Values up to ``low`` have the median ``high``, larger values have ``low``.

    None if there are fewer than ``least`` others. For an even number of others it is the upper of the middle values, so
    that one fast worker does not make the others look slow.
    """
    ordered = sorted([value for value in values if value == value])
    left = len(ordered) - 1
    if left < max(1, least):
        return None
    # Without the entry itself the list is one shorter: each value behind it moves up by one.
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


def _learn(usual: "array[float]", counted: "array[float]", leaving: "array[float]", flagged: Columns) -> None:
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
