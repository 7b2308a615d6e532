"""Batch samplers for a DataLoader that the script creates itself: lists of indices that follow the agreed shares.

Such a loader does not report the batches that it returns. They are used in the order in which they were drawn, one for
each ``pacer.step``. A watched module's forward, or a later draw, shows when the next one is used.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.utils.data import Sampler

from paceline.errors import CannotAttach
from paceline.loading import Batches, Passing, Plan

if TYPE_CHECKING:
    from paceline.pacer import Pacer


class BatchSampler(Passing, Sampler[list[int]]):
    """The batches of a rank in every pass, as indices; created by ``pacer.batch_sampler``."""

    def __init__(self, pacer: "Pacer", length: int, plan: Plan) -> None:
        if not isinstance(length, int) or isinstance(length, bool):
            raise CannotAttach(f"batch_sampler(): length is {length!r}; give the number of samples: len(dataset)")
        if length < 1:
            raise CannotAttach(f"batch_sampler(): length is {length!r}; give the number of samples, 1 or more")
        self.pacer, self.plan = pacer, plan
        self.batches = Batches(plan, length, rank=pacer.rank, world=pacer.world)
        self._in_use = self._is_awaited = self._is_drawn_out = False
        self._requested = 0
        """Batches that were requested in this pass."""
        self._ahead: int | None = None
        """Batches that the loader's workers draw ahead; None: not known before the pass's first batch is used."""
        self._slack = 0
        """Iterations that the script has drawn while another one's sum was in progress, beyond those of its workers."""

    @property
    def promised(self) -> int:
        """The last iteration that is drawn before the current one has ended."""
        return self.batches.promised_with(self._slack)

    def __iter__(self) -> Iterator[list[int]]:
        return _Drawing(self)

    def begin_pass(self) -> Iterator[list[int]]:
        """Begin the next pass, or the rest of one; return its batches."""
        pacer, batches = self.pacer, self.batches
        each = pacer.begin_pass(self)
        batches.begin(each, pacer.cursor.data.seed, pacer.multiple, pacer.timeline)
        self._in_use = self._is_drawn_out = False
        self._requested, self._ahead = 0, None
        self._await()
        return iter(batches)

    def finish(self) -> None:
        """A pass begins after this loader's."""
        if self._is_drawn_out and self.batches.draws:
            self.pacer.give_up(
                f"{len(self.batches.draws)} batches of a pass were drawn without pacer.step(): call it after each batch"
                " that comes by way of batch_sampler()"
            )
            self.pacer.cursor.end_pass()

    def next_batch(self, drawing: Iterator[list[int]]) -> list[int]:
        """Return the indices of the next batch.

        Raises:
            StopIteration: if the pass has no more.
        """
        self._requested += 1
        is_left = self._requested <= self.batches.left
        if is_left and self._ahead == 0 and not self._in_use and self._requested > 1:
            self._await()
        if is_left:
            self._slack += self.pacer.overdraw(self.batches.next_iteration)
        try:
            return next(drawing)
        except StopIteration:
            self._is_drawn_out = True
            raise
        finally:
            if self._ahead:  # a batch that was drawn earlier is yielded, and another one is drawn for it
                self.use_next()

    def use_next(self) -> None:
        """The batch that was drawn first is computed next, if none is."""
        if self._in_use or not self.batches.draws:
            return
        if self._ahead is None:
            self._ahead = self._requested - 1
        if not self._is_awaited:
            self._await(outside=False)
        self._in_use, self._is_awaited = True, False
        self.pacer.has_batch(self.batches.draws.popleft())

    def used(self) -> None:
        """``step`` was called for it."""
        self._in_use = False

    def _await(self, *, outside: bool = True) -> None:
        self._is_awaited = True
        self.pacer.awaiting_batch(outside=outside)


class _Drawing(Iterator[list[int]]):
    """One pass, which begins with its first batch: a DataLoader with workers creates two of them and uses one.

    Not a generator: a loader continues requesting batches after the end, while it yields what it has drawn ahead.
    """

    def __init__(self, sampler: BatchSampler) -> None:
        self._sampler = sampler
        self._batches: Iterator[list[int]] | None = None
        self._turns, self._number = sampler.pacer.turns, 0
        """Of the pass, once it has begun."""

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._batches = self._sampler.begin_pass()
            self._number = self._turns.number
        self._turns.enter(self._number)
        return self._sampler.next_batch(self._batches)

    def __del__(self) -> None:
        self._turns.leave(self._number)
