"""The status exchange: an all-reduce of one row of numbers per rank; when it starts, and when its result is read.

Until shares have converged it is made and awaited at the end of each iteration. Later it starts with an iteration and
is read at its end, so that it overlaps with compute; in a fast loop only some iterations have one.
"""

from typing import TYPE_CHECKING, Protocol

from controlplane.protocol.agreement import Agreement, Row, Settled
from paceline.sooner import Sooner

if TYPE_CHECKING:
    from paceline.channel import AnyChannel, Sum


class Words(Protocol):
    """A rank's current row of numbers; read only when an exchange starts."""

    def __call__(self, *, means: bool, is_over: bool) -> Row:
        """Return the row.

        Args:
            means: include the mean times of all iterations since the previous exchange.
            is_over: the exchange is at the end of the iteration, not at its start.
        """


class Exchange:
    """One rank's part. Every rank makes the same calls in the same order.

    Args:
        channel: sums the rows.
        agreement: interprets the sum.
        sooner: moves a planned exchange to an earlier iteration.
        words: returns this rank's row.
        is_in_each: whether each iteration has an exchange, regardless of its duration.
    """

    def __init__(
        self, channel: "AnyChannel", agreement: Agreement, sooner: Sooner, words: Words, *, is_in_each: bool
    ) -> None:
        self._channel, self._agreement, self._sooner, self._words = channel, agreement, sooner, words
        self._is_in_each = is_in_each
        self._sum: Sum | None = None
        self._settled: Settled | None = None
        """The agreement of a sum that was read before the iteration's end."""
        self._next = 0
        """The next iteration that has an exchange."""
        self._apart = 1
        """Iterations whose times are sent with it."""
        self._promised = -1
        """The last iteration that this rank may draw before it has read the sum in progress."""
        self._began_early = False
        """Whether the last exchange started with its iteration."""

    @property
    def is_open(self) -> bool:
        """Whether a sum is in progress."""
        return self._sum is not None

    def summed(self) -> None:
        """A sum of gradients is complete, and the CPU has waited for it."""
        self._sooner.summed()

    def begin_iteration(self, iteration: int) -> None:
        """The iteration's first batch was yielded."""
        if iteration < self._next and self._sooner.is_due():
            self._next = iteration
        if iteration >= self._next:
            self._sooner.begin()
        if not self._agreement.is_awaited:
            self._begin(iteration, is_over=False)

    def overdraw(self, drawn: int, current: int) -> int:
        """By how many iterations ``drawn`` exceeds the promised one; if it does, the sum in progress is read now."""
        over = drawn - self._promised
        if self._sum is None or over <= 0:
            return 0
        self._read(current)
        return over

    def end_iteration(self, iteration: int) -> Settled | None:
        """End the iteration; return the agreement of its exchange, or None if it had none."""
        self._began_early = self._sum is not None or self._settled is not None
        if not self._began_early and self._agreement.is_awaited:
            self._begin(iteration, is_over=True)
        self._read(iteration)
        settled, self._settled = self._settled, None
        if settled is not None:
            self._plan(settled, iteration)
        return settled

    def repeat(self, iteration: int, row: Row) -> Settled:
        """Make another, awaited exchange after the same iteration: while ranks are paused."""
        settled = self._agreement.read(self._channel.total(self._agreement.encode(row)), iteration)
        self._plan(settled, iteration)
        return settled

    def counts(self, samples: int) -> list[int]:
        """The ``samples`` of each rank, by rank. Collective."""
        words = [0.0] * self._agreement.world
        words[self._agreement.rank] = float(samples)
        return [int(count) for count in self._channel.total(words)]

    def _plan(self, settled: Settled, iteration: int) -> None:
        # If exchanges become awaited here, this iteration's times are sent with those of the next.
        is_late = self._began_early and self._agreement.is_awaited
        self._next, self._apart = settled.next_round, settled.next_round - iteration + is_late

    def _begin(self, iteration: int, *, is_over: bool) -> None:
        if iteration < self._next and not self._is_in_each:
            return
        row = self._words(means=self._apart > 1, is_over=is_over)
        self._promised = row.promised
        self._sum = self._channel.begin(self._agreement.encode(row))

    def _read(self, iteration: int) -> None:
        if self._sum is not None:
            under_way, self._sum = self._sum, None
            self._settled = self._agreement.read(under_way.result(), iteration)
            self._sooner.end()
