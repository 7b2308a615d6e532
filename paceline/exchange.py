"""The exchange of words between the ranks of a job: in which iterations, when it begins, and when it is read.

While shares settle it is made and awaited at an iteration's end. Later it begins with an iteration and is read at its
end, so that it overlaps with computing; in a fast loop only some iterations have one.
"""

from typing import TYPE_CHECKING, Protocol

from controlplane.protocol.agreement import Agreement, Row, Settled
from paceline.sooner import Sooner

if TYPE_CHECKING:
    from paceline.channel import AnyChannel, Sum


class Words(Protocol):
    """A rank's present row; only read when an exchange starts."""

    def __call__(self, *, means: bool, is_over: bool) -> Row:
        """Its row.

        Args:
            means: with the mean times of all iterations since the exchange before.
            is_over: at the end of the iteration, not at its beginning.
        """


class Exchange:
    """One rank's part. Every rank makes the same calls in the same order.

    Args:
        channel: where words are added up.
        agreement: what they mean.
        sooner: makes an exchange that is planned sooner.
        words: those of this rank.
        is_in_each: whether each iteration has one, however fast the loop is.
    """

    def __init__(
        self, channel: "AnyChannel", agreement: Agreement, sooner: Sooner, words: Words, *, is_in_each: bool
    ) -> None:
        self._channel, self._agreement, self._sooner, self._words = channel, agreement, sooner, words
        self._is_in_each = is_in_each
        self._sum: Sum | None = None
        self._settled: Settled | None = None
        """The meaning of the sum that was read before the iteration's end."""
        self._next = 0
        """The next iteration that has an exchange."""
        self._apart = 1
        """Iterations whose times come with it."""
        self._promised = -1
        """The last iteration that this rank may draw before it has read the sum under way."""
        self._began_early = False
        """Whether the last one began with its iteration."""

    @property
    def is_open(self) -> bool:
        """Whether one is under way."""
        return self._sum is not None

    def summed(self) -> None:
        """A sum of gradients is complete, and the CPU has waited for it."""
        self._sooner.summed()

    def begin_iteration(self, iteration: int) -> None:
        """Its first batch was handed out."""
        if iteration < self._next and self._sooner.is_due():
            self._next = iteration
        if iteration >= self._next:
            self._sooner.begin()
        if not self._agreement.is_awaited:
            self._begin(iteration, is_over=False)

    def overdraw(self, drawn: int, current: int) -> int:
        """By how many iterations ``drawn`` is past what was promised: then the sum under way is read now."""
        over = drawn - self._promised
        if self._sum is None or over <= 0:
            return 0
        self._read(current)
        return over

    def end_iteration(self, iteration: int) -> Settled | None:
        """The agreement of the exchange; None: it had no exchange."""
        self._began_early = self._sum is not None or self._settled is not None
        if not self._began_early and self._agreement.is_awaited:
            self._begin(iteration, is_over=True)
        self._read(iteration)
        settled, self._settled = self._settled, None
        if settled is not None:
            self._plan(settled, iteration)
        return settled

    def repeat(self, iteration: int, row: Row) -> Settled:
        """One more behind the same iteration, awaited: while ranks are paused."""
        settled = self._agreement.read(self._channel.total(self._agreement.encode(row)), iteration)
        self._plan(settled, iteration)
        return settled

    def counts(self, samples: int) -> list[int]:
        """The ``samples`` of each rank, by rank. Collective."""
        words = [0.0] * self._agreement.world
        words[self._agreement.rank] = float(samples)
        return [int(count) for count in self._channel.total(words)]

    def _plan(self, settled: Settled, iteration: int) -> None:
        # Where awaited ones begin now, this iteration's times come with those of the next.
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
