"""When to read the reports of an iteration: several at a time, where none of them leads to a decision.

A synchronous iteration is decided with its last report. Each read is answered by a commit, so reading every report as
it arrives costs a hundred workers a hundred commits. The time until the last one is known from the iteration before,
and is shorter the fewer reports are missing: the holder of the job's lease waits for a part of it.
"""

from typing import Final

from controlplane.core.iterations import Ledger

PART: Final = 0.2
"""Part of the expected time until the last report. Reads follow one another in a geometric series, and if all come at
once, the iteration is longer by this part of the time over which they spread before."""

LEAST_S: Final = 0.002
"""A shorter wait costs more than it saves."""

MOST_S: Final = 0.05
"""Limit: users' requests wait as well."""


class Gathering:
    """The pace at which the reports of one job arrive."""

    __slots__ = ("_began_s", "_iteration", "_spread_s", "_waited_s", "_whole")

    def __init__(self) -> None:
        self._iteration = -1
        """The open one."""
        self._whole = 0
        """How many reports it lacked at first."""
        self._began_s: float | None = None
        """When the first of its reports were read."""
        self._waited_s = 0.0
        """The wait before the last read: reports may have come at its beginning."""
        self._spread_s = 0.0
        """Time between the first and the last report of the iteration before it, at least."""

    def pause_s(self, ledger: Ledger | None, now_s: float) -> float:
        """How long to wait before the next read, after one that left the open iteration in this state.

        ``ledger`` is None if any report may lead to a decision.
        """
        self._waited_s, waited_s = 0.0, self._waited_s
        if ledger is None:
            self._iteration = -1
            return 0.0
        if ledger.iteration != self._iteration:
            follows = ledger.iteration == self._iteration + 1 and self._began_s is not None
            self._spread_s = max(0.0, now_s - (self._began_s or 0.0) - waited_s) if follows else 0.0
            self._iteration, self._whole, self._began_s = ledger.iteration, ledger.missing, None
        if ledger.missing >= self._whole:  # what was read was no report of this iteration
            return 0.0
        if self._began_s is None:
            self._began_s = now_s
        if ledger.missing < 2:
            return 0.0
        wait_s = min(MOST_S, PART * self._spread_s * ledger.missing / self._whole)
        if wait_s < LEAST_S:
            return 0.0
        self._waited_s = wait_s
        return wait_s
