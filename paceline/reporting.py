"""A rank's report of each iteration, made once the other ranks have sent their times and its waiting time is known."""

import logging
import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, Final, NamedTuple, Protocol

from controlplane.protocol.agreement import Columns
from controlplane.protocol.measurements import OF_WORKERS, fitting
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.noise import NoiseScale
from paceline.control import Control
from paceline.energy import Power
from paceline.load import Load
from paceline.marks import Clock, Durations, Measured, durations

MOST_WAITING: Final = 16
"""Iterations whose report may wait for other ranks' times; beyond this it is made without them."""


class Times(NamedTuple):
    """Values of an iteration that a rank sends to the others, so that each can compute its waiting time."""

    sum_s: float
    """From the last gradient passed to the sum until its end."""
    exchange_s: float
    """The status exchange before the iteration."""
    link_s: float
    """Time that the rank's links need for both."""


AnyTimes = tuple[float, float, float]
"""``Times`` as received from several ranks: without names."""

NO_TIMES: Final = Times(0.0, 0.0, 0.0)

THIN_PART: Final = 0.25
THIN_TIMES: Final = 3.0
"""A link is slow if it needs this fraction of the sum, and this many times as long as the median link."""

log = logging.getLogger("paceline")


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One iteration of this rank, as reported."""

    number: int
    samples: int
    shares: tuple[int, ...]
    """Samples by rank, as agreed for this iteration; the last one of a pass may have fewer."""
    loss: float
    """The mean over its batches; nan or inf if it is."""
    data_s: float
    compute_s: float
    """Time until the gradients are ready, and after their sum."""
    communication_s: float
    waiting_s: float
    """Time spent waiting for ranks that joined the sum later."""
    outside_s: float
    """Time between the previous iteration and this one: evaluation, checkpoints. Not part of the iteration."""
    logged: dict[str, float]

    @property
    def seconds(self) -> float:
        """Sum of all parts."""
        return self.data_s + self.compute_s + self.communication_s + self.waiting_s


Subscriber = Callable[[Iteration], object]


class Forwarder(Protocol):
    """A subscriber that passes iterations on, on its own thread."""

    def __call__(self, iteration: Iteration) -> None:
        """Pass this iteration on."""

    def end(self) -> None:
        """No iteration follows; does not wait."""

    def wait(self, seconds: float) -> None:
        """After ``end``: wait until all iterations are passed on, at most this long."""


class Reporter:
    """Finished iterations that are not reported yet, in order."""

    def __init__(self, rank: int, world: int, control: Control | None) -> None:
        self._rank, self._world, self._control = rank, world, control
        self._over: deque[Measured] = deque()
        """Iterations whose times are not known yet."""
        self._timed: deque[tuple[Measured, Durations]] = deque()
        self._last_reported = -1
        """The last iteration whose times were sent to the other ranks."""
        self._sums: dict[int, dict[int, AnyTimes]] = {}
        """By iteration and rank."""
        self._sent_means = False
        """Whether the last times that were sent are means."""
        self._transfer_s = 0.0
        """Of the last sum."""
        self._shares: tuple[int, ...] = ()
        """Of the last iteration that was reported; one object while shares stay."""
        self._load, self._power = Load(), Power()
        self._noise = NoiseScale()
        self.last: Iteration | None = None
        """The last iteration that was reported."""
        self.subscribers: list[Subscriber] = []
        self._forwarders: list[Forwarder] = []

    @property
    def is_read(self) -> bool:
        """Whether anyone receives the numbers of the script."""
        return self._control is not None or bool(self.subscribers)

    def forward(self, forwarder: Forwarder) -> None:
        """Pass each iteration to ``forwarder``, and wait for it at the end."""
        self.subscribers.append(forwarder)
        self._forwarders.append(forwarder)

    def computes_on(self, device: object) -> None:
        """Report the memory of this device, which need not be torch's current one."""
        self._load.device = device

    def add(self, measured: Measured) -> None:
        """Add a finished iteration."""
        self._over.append(measured)

    def resolve(self, clock: Clock) -> None:
        """Read the times of iterations whose marks have occurred."""
        while self._over and (found := durations(clock, self._over[0])) is not None:
            self._timed.append((self._over.popleft(), found))

    def next_timed(self, *, means: bool = False) -> tuple[int, Times]:
        """Return the next iteration to send to the other ranks, and its times; -1 if there is none.

        ``means``: all that were not sent, as the last one's number and their mean times; the same on all ranks.
        """
        self._sent_means = means
        new = [each for each in self._timed if each[0].iteration > self._last_reported]
        if not means:
            del new[1:]
        if not new:
            return -1, NO_TIMES
        self._last_reported = new[-1][0].iteration
        columns = zip(*[(found.sum, found.exchange, measured.link_s) for measured, found in new], strict=True)
        return self._last_reported, Times(*[sum(column) / len(new) for column in columns])

    def note_sums(self, columns: Columns, ceiling: int) -> None:
        """Store the ranks' times of earlier iterations; report those that are complete."""
        if self._sent_means:
            self._note_means(columns, ceiling)
            return
        if columns.timed.count(columns.timed[0]) == len(columns.timed):
            self._sums[int(columns.timed[0])] = dict(enumerate(_times(columns)))
        else:
            for rank, (iteration, times) in enumerate(zip(columns.timed, _times(columns), strict=True)):
                self._sums.setdefault(int(iteration), {})[rank] = times
        self._sums.pop(-1, None)
        while self._timed:
            measured, found = self._timed[0]
            sums = self._sums.get(measured.iteration, {})
            if len(sums) < self._world and len(self._timed) + len(self._over) <= MOST_WAITING:
                return
            self._timed.popleft()
            self._transfer_s = transfer_s(self._rank, sums) if sums else self._transfer_s
            self._report(measured, found, ceiling)
            self._sums = {
                iteration: columns for iteration, columns in self._sums.items() if iteration > measured.iteration
            }

    def _note_means(self, columns: Columns, ceiling: int) -> None:
        told = enumerate(zip(columns.timed, _times(columns), strict=True))
        sums = {rank: times for rank, (iteration, times) in told if iteration >= 0}
        self._transfer_s = transfer_s(self._rank, sums) if sums else self._transfer_s
        self._sums = {}
        while self._timed and self._timed[0][0].iteration <= self._last_reported:
            self._report(*self._timed.popleft(), ceiling)

    def alone(self, clock: Clock) -> None:
        """Report the iterations without other ranks' times."""
        self.resolve(clock)
        while self._timed:
            self._report(*self._timed.popleft(), 0)

    def flush(self, clock: Clock, ceiling: int = 0) -> None:
        """At the end: report the remaining iterations, assuming that their transfer took as long as the last one."""
        self.resolve(clock)
        while self._timed:
            self._report(*self._timed.popleft(), ceiling)

    def end(self, clock: Clock, ceiling: int) -> None:
        """Report the remaining iterations; none follows."""
        self.flush(clock, ceiling)
        for forwarder in self._forwarders:
            forwarder.end()

    def await_forwarders(self, until_s: float) -> None:
        """After ``end``: wait until they have passed everything on, at most until then by the monotonic clock."""
        for forwarder in self._forwarders:
            forwarder.wait(max(0.0, until_s - time.monotonic()))

    def _report(self, measured: Measured, found: Durations, ceiling: int) -> None:
        shared_s = found.sum + found.exchange
        own_s = min(shared_s, self._transfer_s) if self._world > 1 else shared_s
        losses = [loss() for loss in measured.losses]
        norms = measured.norms
        if norms is not None and (squares := norms.squares()) is not None:
            self._noise.add(*squares, share=norms.share, batch=norms.batch)
        if (shares := tuple(measured.shares)) != self._shares:
            self._shares = shares
        done = Iteration(
            number=measured.iteration,
            samples=measured.samples,
            shares=self._shares,
            loss=sum(losses) / len(losses) if losses else 0.0,
            data_s=found.data,
            compute_s=found.compute,
            communication_s=own_s,
            waiting_s=shared_s - own_s,
            outside_s=found.outside,
            logged=_logged(measured),
        )
        self.last = done
        if self._control is not None:
            self._send(self._control, done, measured.position, ceiling)
        for subscriber in self.subscribers:
            try:
                subscriber(done)
            except Exception:
                log.exception("paceline: a subscriber failed and gets no more reports")
                self.subscribers = [other for other in self.subscribers if other is not subscriber]

    def _send(self, control: Control, done: Iteration, position: int, ceiling: int) -> None:
        is_number = math.isfinite(done.loss)
        watts = self._power.watts(self._load.device)
        joules = watts * done.seconds if watts is not None else None
        found = {**self._load.numbers(), "noise_scale": self._noise.samples, "joules": joules}
        readings = fitting(OF_WORKERS, found)
        control.say(
            partial(
                _numbered,
                generation=control.generation,
                iteration=done.number,
                samples=done.samples,
                position=position,
                loss=done.loss if is_number else 0.0,
                spoilt="" if is_number else "nan" if math.isnan(done.loss) else "inf",
                data_s=done.data_s,
                compute_s=done.compute_s,
                push_s=0.0,
                pull_s=done.communication_s,
                waiting_s=done.waiting_s,
                coordination_s=0.0,
                outside_s=done.outside_s,
                ceiling=ceiling or None,
                logged=done.logged,
                **readings,
            )
        )


def transfer_s(rank: int, measured: Mapping[int, AnyTimes]) -> float:
    """How long a rank's own part in an iteration's sum and exchange was; for the rest of them the rank waited.

    Each is shortest for the rank that came last: it is transfer only. If one rank's links need most of that time, and
    several times as long as others' do, it is their transfer, and the others waited for them. Then both count as one:
    what a sum has left in the buffers of a slow link, the exchange behind it has to wait for.

    Args:
        rank: which rank.
        measured: the times of each rank, by rank.
    """
    sums, exchanges, links = zip(*measured.values(), strict=True)
    shortest_s, longest_s = min(map(add, sums, exchanges)), max(links)
    if not longest_s or longest_s < THIN_PART * shortest_s or longest_s < THIN_TIMES * statistics.median_low(links):
        return float(min(sums) + min(exchanges))
    own_s = measured[rank][2] if rank in measured else 0.0
    return float(shortest_s * min(1.0, own_s / longest_s))


def _times(columns: Columns) -> "zip[AnyTimes]":
    return zip(columns.sum_s, columns.exchange_s, columns.link_s, strict=True)


def _numbered(number: int, **fields: Any) -> IterationReport:
    return IterationReport(number=number, **fields)


def _logged(measured: Measured) -> dict[str, float]:
    values = {name: value() for name, value in measured.logged.items()}
    return {name: value for name, value in values.items() if math.isfinite(value)}
