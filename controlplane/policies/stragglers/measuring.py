"""Measures one iteration: how slow each rank was by the others' median and by its own past.

In plain floats: arrays would cost more for few ranks, and save 0.6 us per rank of a thousand.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import expm1, inf, log, nan
from typing import Final

COMPARED: Final = 3
"""Of two different values it cannot be decided which one is the outlier."""

KNOWN: Final = 5
"""Iterations after which a worker's own past is evidence."""

PACE, PACE_WHILE_OPEN = 0.05, 0.005
"""Weight of one more iteration in what is usual, in the long run."""

JUMP: Final = 0.2
"""One iteration moves what is usual by no more than if it had been so much off: a spike is no new habit."""

Columns = Sequence[int]

NOT_WORTH: Final = 0.1
"""The most that an excess counts as in an iteration in which the time lost is negligible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One iteration: of each rank, how long it took in seconds, for how much work, and how long its iteration was."""

    ranks: list[int]
    """Ascending."""
    seconds: list[float]
    units: list[float]
    iteration_s: list[float]

    def for_ranks(self, ranks: list[int]) -> "Row":
        """The same with these ranks; those not in it have NaN."""
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
    """What a panel knows before an iteration, as float32, one for each of its ranks."""

    leaving: bytes
    """The costs that leave the window now; empty where none do."""
    usual: bytes
    counted: bytes
    flagged: Columns
    """Columns with an open flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """What an iteration adds to a panel, as float32."""

    costs: bytes
    others: bytes
    own: bytes
    usual: bytes
    counted: bytes
    unmeasured: Columns
    """Columns of which nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The time lost at which an iteration counts as slow."""

    part: float
    least_s: float


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

    Nothing where there are fewer than ``least`` others. Of an even number of others the upper middle one: if two
    disagree, the faster one alone makes no worker slow.
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
