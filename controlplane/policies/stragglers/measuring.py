"""What ``few`` and ``many`` are handed and give back: one iteration, what was known before it, and its figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

COMPARED: Final = 3
"""Of two that differ nobody can say which one is out of the ordinary."""

KNOWN: Final = 5
"""Iterations after which somebody's own past is evidence."""

PACE, PACE_WHILE_OPEN = 0.05, 0.005
"""Weight of one more iteration in what is usual, in the long run."""

JUMP: Final = 0.2
"""One iteration moves what is usual by no more than if it had been so much off: a spike is no new habit."""

NOT_WORTH: Final = 0.1
"""What an excess counts as, at most, in an iteration in which the time lost is not worth speaking of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One iteration: of each rank, how long it took in seconds, for how much work, and how long its iteration was."""

    ranks: list[int]
    """Ascending."""
    seconds: list[float]
    units: list[float]
    iteration_s: list[float]

    def for_ranks(self, ranks: list[int]) -> "Row":
        """The same with these ranks; those who were not in it took no number of seconds."""
        if ranks == self.ranks:
            return self
        place = {rank: column for column, rank in enumerate(self.ranks)}

        def pick(of: list[float], fill: float) -> list[float]:
            return [of[place[rank]] if rank in place else fill for rank in ranks]

        return Row(
            ranks=ranks,
            seconds=pick(self.seconds, math.nan),
            units=pick(self.units, 1.0),
            iteration_s=pick(self.iteration_s, math.nan),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a panel knows before an iteration, as float32, one for each of its ranks."""

    leaving: bytes
    """The costs that leave the window now; empty where none do."""
    usual: bytes
    counted: bytes
    flagged: Sequence[int]
    """Columns with an open flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class New:
    """What an iteration adds to a panel, as float32."""

    costs: bytes
    others: bytes
    own: bytes
    usual: bytes
    counted: bytes
    unmeasured: Sequence[int]
    """Columns of which nothing was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The time lost from which on an iteration counts as slow."""

    part: float
    least_s: float
