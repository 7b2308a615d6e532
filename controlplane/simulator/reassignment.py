"""FlexRR's RapidReassignment as a baseline: work is handed from worker to worker within an iteration.

This is not a policy of the system: it models the baseline of LB-BSP sections 2.2.3 and 5.3. An idle worker asks the
worker that will be busy longest, which hands over enough samples that both end together. Each hand-over takes a message
and its answer, and reassigned samples take longer. The engine does not know about it: for the engine, shares are as
under BSP.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

from msgspec import Meta

from controlplane.protocol.base import Positive, Seconds
from controlplane.protocol.spec import Part
from controlplane.simulator.machines import Machine

MAX_HAND_OVERS: Final = 16
"""The most hand-overs to one worker in one iteration: each halves the rest, so more are not worth their messages."""


class Reassignment(Part, frozen=True, kw_only=True):
    """The cost of a hand-over."""

    negotiation_s: Seconds = 0.05
    """From the request of an idle worker until it begins with the reassigned samples."""
    times: Annotated[float, Meta(ge=1.0)] = 1.25
    """The factor by which a reassigned sample takes longer: it must be fetched, and its update kept separate."""
    least: Positive = 2
    """The fewest samples that are handed over."""


class Helper(Protocol):
    """A worker that others may help, and that may help others."""

    rank: int
    machine: Machine

    @property
    def iteration(self) -> int:
        """The iteration that it is in."""

    @property
    def now(self) -> float:
        """Virtual time."""

    @property
    def computes_until_s(self) -> float:
        """When its computation will end, as things are."""

    def is_computing(self, iteration: int) -> bool:
        """Whether it can hand over some of its share of that iteration."""

    def left_at(self, at_s: float) -> int:
        """How many of its own samples it will not have processed by ``at_s``."""

    def hand_over(self, samples: int) -> None:
        """Reassign ``samples`` of its samples to another worker."""

    def take_over(self, samples: int) -> None:
        """Add ``samples`` to its own."""


class Helpers:
    """All workers of a job; each may help any other."""

    def __init__(self, settings: Reassignment) -> None:
        self._settings = settings
        self._given: dict[tuple[int, int], int] = {}
        self.handed = 0
        """Reassigned samples."""

    def help_of(self, idle: Helper, others: Sequence[Helper]) -> float | None:
        """Reassign samples to ``idle``; returns when it will finish them, or None if there are none."""
        now, settings = idle.now, self._settings
        key = (idle.rank, idle.iteration)
        if self._given.get(key, 0) >= MAX_HAND_OVERS:
            return None
        busy = [other for other in others if other is not idle and other.is_computing(idle.iteration)]
        slowest = max(busy, key=lambda other: (other.computes_until_s, -other.rank), default=None)
        if slowest is None or slowest.computes_until_s - now <= settings.negotiation_s:
            return None
        begin_s = now + settings.negotiation_s
        left = slowest.left_at(begin_s)
        own_s = idle.machine.finish_s(1000, begin_s, idle.iteration) - begin_s
        its_s = slowest.computes_until_s - begin_s
        own_rate, its_rate = 1000 / (own_s * settings.times), left / its_s if its_s > 0 else 0.0
        taken = int(left * own_rate / (own_rate + its_rate)) if own_rate + its_rate > 0 else 0
        if taken < settings.least:
            return None
        self._given[key] = self._given.get(key, 0) + 1
        self.handed += taken
        slowest.hand_over(taken)
        idle.take_over(taken)
        return begin_s + (idle.machine.finish_s(taken, begin_s, idle.iteration) - begin_s) * settings.times
