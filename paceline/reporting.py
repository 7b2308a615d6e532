"""What a rank reports of each iteration, once the other ranks have told how long they waited in its sum."""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from controlplane.protocol.agreement import Row
from controlplane.protocol.messages import IterationReport
from paceline.control import Control
from paceline.load import Load
from paceline.marks import Clock, Durations, Measured, durations

MOST_WAITING: Final = 16
"""Iterations whose report may wait for other ranks' times: one that is told of none is not waited for."""

MOST_LOGGED: Final = 32
LONGEST_NAME: Final = 255


class Reporter:
    """Iterations on their way from being over to being reported, in order."""

    def __init__(self, rank: int, world: int, control: Control | None) -> None:
        self._rank, self._world, self._control = rank, world, control
        self._over: deque[Measured] = deque()
        """Not timed yet."""
        self._timed: deque[tuple[Measured, Durations]] = deque()
        self._told = -1
        """The last iteration whose times the other ranks were told."""
        self._sums: dict[int, dict[int, float]] = {}
        """By iteration and rank."""
        self._transfer_s = 0.0
        """Of the last sum."""
        self._load = Load()

    def add(self, measured: Measured) -> None:
        """An iteration is over."""
        self._over.append(measured)

    def resolve(self, clock: Clock) -> None:
        """Read the times of those whose marks have happened."""
        while self._over and (found := durations(clock, self._over[0])) is not None:
            self._timed.append((self._over.popleft(), found))

    def next_timed(self) -> tuple[int, float]:
        """The next iteration to tell the other ranks of, and its sum in seconds; -1 where there is none."""
        for measured, found in self._timed:
            if measured.iteration > self._told:
                self._told = measured.iteration
                return measured.iteration, found.sum
        return -1, 0.0

    def heard(self, rows: Sequence[Row], ceiling: int) -> None:
        """What the ranks have told of earlier iterations; report those that are complete."""
        for rank, row in enumerate(rows):
            if row.timed >= 0:
                self._sums.setdefault(row.timed, {})[rank] = row.sum_s
        while self._timed:
            measured, found = self._timed[0]
            sums = self._sums.get(measured.iteration, {})
            if len(sums) < self._world and len(self._timed) + len(self._over) <= MOST_WAITING:
                return
            self._timed.popleft()
            self._transfer_s = min(sums.values(), default=self._transfer_s)
            self._report(measured, found, ceiling)
            self._sums = {iteration: told for iteration, told in self._sums.items() if iteration > measured.iteration}

    def flush(self, clock: Clock, ceiling: int = 0) -> None:
        """The end: report what is left, the transfer taken to be as long as it last was."""
        self.resolve(clock)
        while self._timed:
            self._report(*self._timed.popleft(), ceiling)

    def _report(self, measured: Measured, found: Durations, ceiling: int) -> None:
        if self._control is None:
            return
        transfer_s = min(found.sum, self._transfer_s)
        loss, spoilt = _loss(measured)
        cpu, memory = self._load.now()
        self._control.say(
            partial(
                _numbered,
                generation=self._control.generation,
                iteration=measured.iteration,
                samples=measured.samples,
                position=measured.position,
                loss=loss,
                spoilt=spoilt,
                # Waiting for data counts as compute until reports have a field of their own for it.
                compute_s=found.data + found.compute,
                push_s=found.sending,
                pull_s=transfer_s,
                waiting_s=found.sum - transfer_s,
                coordination_s=found.other,
                cpu=cpu,
                memory=memory,
                ceiling=ceiling or None,
                logged=_logged(measured),
            )
        )


def _numbered(number: int, **fields: Any) -> IterationReport:
    return IterationReport(number=number, **fields)


def _loss(measured: Measured) -> tuple[float, str]:
    """The mean over the iteration's batches, and what it is if that is no number."""
    losses = [loss() for loss in measured.losses]
    mean = sum(losses) / len(losses) if losses else 0.0
    return (mean, "") if math.isfinite(mean) else (0.0, "nan" if math.isnan(mean) else "inf")


def _logged(measured: Measured) -> dict[str, float]:
    values = {name[:LONGEST_NAME]: value() for name, value in list(measured.logged.items())[:MOST_LOGGED]}
    return {name: value for name, value in values.items() if math.isfinite(value)}
