"""Divides an iteration's time into parts that add up to its duration.

An iteration lasts from the acknowledgement of the previous one's last push to that of its own. Waiting is the time from
that acknowledgement to the orders that release this worker, plus the time for which servers delayed replies.
Coordination is the time from the engine's decision to its arrival. The rest of a transfer is push or pull. Within the
step, waiting for the next batch is data loading, and everything else is compute.
"""

import time
from collections.abc import Callable
from enum import Enum


class Part(Enum):
    """Parts of an iteration; values are the measurements of ``WorkerNumbers``."""

    DATA = "data_s"
    COMPUTE = "compute_s"
    PUSH = "push_s"
    PULL = "pull_s"
    WAITING = "waiting_s"
    COORDINATION = "coordination_s"


class IterationClock:
    """A stopwatch whose laps are assigned to parts."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begin = self._mark = now()
        self._spent = dict.fromkeys(Part, 0.0)

    def lap(self, part: Part, *, held_s: float = 0.0) -> None:
        """Assign the time since the last lap to ``part``, except ``held_s`` of it, which was waiting for others."""
        now = self._now()
        elapsed = now - self._mark
        held = min(max(held_s, 0.0), elapsed)
        self._spent[Part.WAITING] += held
        self._spent[part] += elapsed - held
        self._mark = now

    def lap_decision(self, held_s: float) -> None:
        """Assign the wait for a share: the engine had this worker's last report for ``held_s`` before it could decide.

        Until then this worker waited for others; from then on for the delivery of the decision.
        """
        self.lap(Part.COORDINATION, held_s=self._begin + held_s - self._mark)

    def lap_computing(self, loading_s: float) -> None:
        """Assign the time since the last lap to compute, except the part that was spent waiting for batches."""
        before = self._spent[Part.COMPUTE]
        self.lap(Part.COMPUTE)
        loading_s = min(max(loading_s, 0.0), self._spent[Part.COMPUTE] - before)
        self._spent[Part.COMPUTE] -= loading_s
        self._spent[Part.DATA] += loading_s

    def finish(self) -> dict[str, float]:
        """Return the parts of the iteration that ended with the last lap, by the report's fields; the next one begins
        there.
        """
        parts = {part.value: spent for part, spent in self._spent.items()}
        self._spent = dict.fromkeys(Part, 0.0)
        self._begin = self._mark
        return parts
