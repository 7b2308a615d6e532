"""The current iteration of a rank: its batch and weights, the duration of its parts, and what the script is doing."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from controlplane.protocol.messages import Place
from paceline.control import Control
from paceline.marks import Clock, CpuClock, Measured, Norms, Part, Stamp
from paceline.stalls import Stalls
from paceline.turns import Turns

if TYPE_CHECKING:
    from paceline.exchange import Exchange
    from paceline.loading import Draw, Loader
    from paceline.sampling import BatchSampler
    from paceline.streams import StreamLoader

AnyLoader: TypeAlias = "Loader | StreamLoader | BatchSampler"


class Current:
    """The interface that ``watch`` uses during an iteration.

    Args:
        rank: this rank.
        world: number of ranks.
        control: receives reports about an iteration that does not end.
    """

    def __init__(self, rank: int, world: int, control: Control | None) -> None:
        self.rank, self.world = rank, world
        self._clock: Clock = CpuClock()
        self._loader: AnyLoader | None = None
        self._draw: Draw | None = None
        """The batch that is computed, during an iteration."""
        self.turns = Turns()
        self.has_computed = False
        """Whether a watched module has run a forward in this pass, or ``step`` was called."""
        self._measured: Measured | None = None
        self._edges: list[tuple[Part, Stamp]] = []
        """The end of the previous iteration, and of the status exchange after it."""
        self._stalls = Stalls(control)
        self._exchange: Exchange | None = None
        """None: the ranks have nothing to agree on, or no channel."""
        self._awaits_sums = True
        """Whether the CPU waits for each sum of gradients, made by the group of all ranks."""

    def weight(self) -> float:
        """Weight of this rank's gradient in this iteration, relative to the average over ranks."""
        self._begin_batch()
        if self._draw is None:
            return 1.0
        sizes = self._draw.sizes
        return sizes[self.rank] * len(sizes) / sum(sizes)

    def micro_weight(self) -> float:
        """Weight of this micro-batch's gradient, relative to the average over the rank's micro-batches."""
        self._begin_batch()
        if self._draw is None or self._loader is None or not (total := self._draw.sizes[self.rank]):
            return 1.0
        return self._draw.size * self._loader.plan.accumulate / total

    def _begin_batch(self) -> None:
        """Gradients are those of the batch that the script took first, also where no forward was noticed."""
        if self._loader is not None:
            self._loader.use_next()

    def norms(self) -> Norms | None:
        """Where the gradient norms of this iteration are recorded; None: they are not."""
        return self._measured.norms if self._measured is not None else None

    def mark(self, part: Part) -> None:
        """The time since the previous mark was spent on ``part``."""
        if self._measured is not None:
            self._measured.add(part, self._clock.stamp())

    def enter(self, place: Place) -> None:
        """The script's thread has reached this point."""
        self._stalls.place = place

    def summing(self) -> None:
        """All gradients of this backward have been passed to the sum, for which the script waits."""
        self._stalls.place = "sum"

    def summed(self) -> None:
        """The sum is complete, and the CPU has waited for it."""
        if self._exchange is not None:
            self._exchange.summed()

    def time_collective(self) -> Callable[[], None]:
        """Start timing a collective that the script waits for; the returned function ends it."""
        begin_s, measured = time.perf_counter(), self._measured

        def end() -> None:
            if measured is not None:
                measured.blocked_s += time.perf_counter() - begin_s

        return end

    def restart(self) -> None:
        """The next iteration's time starts now."""
        self._edges = [(Part.OUTSIDE, self._clock.stamp())]

    def open(self, iteration: int, *, outside: bool) -> None:
        """The script requests the iteration's first batch or another one; ``outside``: it did something else before."""
        if self._measured is None:
            if not self._edges:
                self.restart()
            self._measured = Measured(iteration, 0, 0, self._edges)
            if outside:
                self.mark(Part.OUTSIDE)
        else:
            self.mark(Part.COMPUTE)
        self.enter("data")
