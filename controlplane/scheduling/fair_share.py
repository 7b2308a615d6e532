"""Orders the jobs of teams by each team's recent usage and weight. Pure.

The team with the lowest usage per weight is first. The expected usage of its jobs counts immediately, so that the jobs
of several teams alternate. Usage decays, so a team gets no credit for time that it did not use long ago.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controlplane.scheduling.queueing import SlotRequest, place

HALF_LIFE_S: Final = 86_400.0
"""Half-life of usage."""

CHARGE_S: Final = 3_600.0
"""A waiting job counts as if it held its slots for this time, since its duration is unknown."""

NO_TEAM: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A team's weight and usage."""

    weight: float = 1.0
    used: float = 0.0
    """Usage in slot-seconds, decayed."""

    @property
    def spent(self) -> float:
        """Usage divided by weight; the lowest is first."""
        return self.used / self.weight


def decayed(used: float, elapsed_s: float) -> float:
    """The factor by which usage decays in ``elapsed_s``."""
    return used * math.pow(0.5, max(0.0, elapsed_s) / HALF_LIFE_S)


def fair_order(queue: Sequence[SlotRequest], shares: Mapping[int, Share]) -> list[SlotRequest]:
    """The queue with the jobs of teams interleaved by their shares; each team's jobs stay in their own order.

    Jobs without a team count as one team. With a single team this is the order of priority and submission.
    """
    waiting: dict[int, deque[SlotRequest]] = {}
    for request in sorted(queue, key=place):
        waiting.setdefault(request.team, deque()).append(request)
    if len(waiting) < 2:
        return [request for requests in waiting.values() for request in requests]
    spent = {team: shares.get(team, Share()).spent for team in waiting}
    ordered: list[SlotRequest] = []
    while waiting:
        team = min(waiting, key=lambda each: (spent[each], place(waiting[each][0])))
        request = waiting[team].popleft()
        ordered.append(request)
        spent[team] += CHARGE_S * (request.least + request.servers) / shares.get(team, Share()).weight
        if not waiting[team]:
            del waiting[team]
    return ordered
