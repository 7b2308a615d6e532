"""Divides samples so that the slowest worker ends as early as possible, in whole numbers, exactly.

Each worker's time is ``begin + per_sample * share``. Water-filling: raise a common end time as long as the shares that
fit under it do not exceed the total; the remaining samples go one by one to the worker that would end first with one
more.
"""

import heapq
import math
from collections.abc import Mapping

from controlplane.policies.batching.apportion import Limits, ensure_possible
from controlplane.protocol.base import Value

HALVINGS = 100


class Line(Value, frozen=True, kw_only=True):
    """A worker's time in seconds as a linear function of its share."""

    begin: float
    per_sample: float
    """Above 0."""

    def at(self, share: int) -> float:
        """Seconds for ``share`` samples."""
        return self.begin + self.per_sample * share


def min_max(total: int, lines: Mapping[int, Line], limits: Limits) -> dict[int, int]:
    """Shares that sum to ``total`` within ``limits`` and minimize the longest time; ties to the lowest rank.

    Raises:
        ImpossibleShares: if no shares respect the limits; it names them.
    """
    ensure_possible(total, limits)
    low = min(line.begin for line in lines.values())
    high = max(line.at(total) for line in lines.values())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        fits = sum(_under(middle, lines[rank], limits[rank]) for rank in lines) <= total
        low, high = (middle, high) if fits else (low, middle)
    shares = {rank: _under(low, lines[rank], limits[rank]) for rank in sorted(lines)}
    _hand_out(total - sum(shares.values()), shares, lines, limits)
    return shares


def _under(end: float, line: Line, limits: tuple[int, int]) -> int:
    """How many samples a worker finishes before ``end``, within its limits."""
    least, most = limits
    fits = (end - line.begin) / line.per_sample
    return most if fits >= most else max(least, math.floor(fits))


def _hand_out(left: int, shares: dict[int, int], lines: Mapping[int, Line], limits: Limits) -> None:
    ends = [(lines[rank].at(share + 1), rank) for rank, share in shares.items() if share < limits[rank][1]]
    heapq.heapify(ends)
    for _ in range(left):
        _, rank = heapq.heappop(ends)
        shares[rank] += 1
        if shares[rank] < limits[rank][1]:
            heapq.heappush(ends, (lines[rank].at(shares[rank] + 1), rank))
