"""Where an iteration's time went, by one definition: its parts sum to its length, since every moment is charged once.

An iteration runs from the acknowledgement of the previous one's last push to that of its own. Waiting is the time
from that acknowledgement to the orders that release this worker, and whatever a server held a reply back;
coordination is the time from the engine's decision to its arrival; the rest of a transfer is push or pull. Inside the
step, waiting for the next batch is data, and everything else is compute.
"""

import time
from collections.abc import Callable
from enum import Enum


class Part(Enum):
    """Phases that time is assigned to; values are the measurements of ``WorkerNumbers``."""

    DATA = "data_s"
    COMPUTE = "compute_s"
    PUSH = "push_s"
    PULL = "pull_s"
    WAITING = "waiting_s"
    COORDINATION = "coordination_s"


class IterationClock:
    """A stopwatch whose laps are charged to parts."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begin = self._mark = now()
        self._spent = dict.fromkeys(Part, 0.0)

    def lap(self, part: Part, *, held_s: float = 0.0) -> None:
        """Charge the time since the last lap to ``part``, except ``held_s`` of it, which was waiting for others."""
        now = self._now()
        elapsed = now - self._mark
        held = min(max(held_s, 0.0), elapsed)
        self._spent[Part.WAITING] += held
        self._spent[part] += elapsed - held
        self._mark = now

    def lap_decision(self, held_s: float) -> None:
        """Charge the wait for a share: the engine had this worker's last report for ``held_s`` before it could decide.

        Until then this worker waited for others; from then on for the decision to arrive.
        """
        self.lap(Part.COORDINATION, held_s=self._begin + held_s - self._mark)

    def lap_computing(self, loading_s: float) -> None:
        """Charge the time since the last lap to compute, except the part of it that was spent waiting for batches."""
        before = self._spent[Part.COMPUTE]
        self.lap(Part.COMPUTE)
        loading_s = min(max(loading_s, 0.0), self._spent[Part.COMPUTE] - before)
        self._spent[Part.COMPUTE] -= loading_s
        self._spent[Part.DATA] += loading_s

    def finish(self) -> dict[str, float]:
        """The parts of the iteration that ended with the last lap, by the report's fields; the next begins there."""
        parts = {part.value: spent for part, spent in self._spent.items()}
        self._spent = dict.fromkeys(Part, 0.0)
        self._begin = self._mark
        return parts
