"""The current iteration of a rank: its batch and weights, how long its parts took, and what the script is doing."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from controlplane.protocol.messages import Place
from paceline.control import Control
from paceline.marks import Clock, CpuClock, Measured, Part
from paceline.stalls import Stalls

if TYPE_CHECKING:
    from paceline.loading import Draw, Loader
    from paceline.sampling import BatchSampler
    from paceline.streams import StreamLoader

AnyLoader: TypeAlias = "Loader | StreamLoader | BatchSampler"


class Current:
    """What ``watch`` asks and says during an iteration.

    Args:
        rank: this one.
        world: how many there are.
        control: told of an iteration that does not end.
    """

    def __init__(self, rank: int, world: int, control: Control | None) -> None:
        self.rank, self.world = rank, world
        self._clock: Clock = CpuClock()
        self._loader: AnyLoader | None = None
        self._draw: Draw | None = None
        """The batch that was handed out last, within an iteration."""
        self._measured: Measured | None = None
        self._edge: Any = None
        """The end of the previous iteration."""
        self._stalls = Stalls(control)

    def weight(self) -> float:
        """Weight of this rank's gradient in this iteration, where ranks are averaged."""
        if self._draw is None:
            return 1.0
        sizes = self._draw.sizes
        return sizes[self.rank] * len(sizes) / sum(sizes)

    def micro_weight(self) -> float:
        """Weight of this micro-batch's gradient among those of its rank, which the script averages."""
        if self._draw is None or self._loader is None or not (total := self._draw.sizes[self.rank]):
            return 1.0
        return self._draw.size * self._loader.plan.accumulate / total

    def mark(self, part: Part) -> None:
        """The time since the previous mark was spent on ``part``."""
        if self._measured is not None:
            self._measured.add(part, self._clock.stamp())

    def enter(self, place: Place) -> None:
        """The script's thread is at this point now."""
        self._stalls.place = place

    def time_collective(self) -> Callable[[], None]:
        """Begin to time a collective that is waited for; the returned function is called at its end."""
        begin_s, measured = time.perf_counter(), self._measured

        def end() -> None:
            if measured is not None:
                measured.blocked_s += time.perf_counter() - begin_s

        return end

    def open(self, iteration: int, *, outside: bool) -> None:
        """The script requests the iteration's first batch, or a further one; ``outside``: and did something before."""
        if self._measured is None:
            self._edge = self._edge if self._edge is not None else self._clock.stamp()
            self._measured = Measured(iteration, 0, 0, [(Part.OUTSIDE, self._edge)])
            if outside:
                self.mark(Part.OUTSIDE)
        else:
            self.mark(Part.COMPUTE)
        self.enter("data")
