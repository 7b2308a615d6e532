"""A-BSP (section 3.2, Alg. 1): once the fastest worker has finished and enough is processed, all synchronize.

A worker that has processed its share requests the synchronization. From then on every progress report is checked until
the ratio is reached (ruling 17): known processed samples over the sum of the iteration's shares; equality is enough.
The signal is sent once per iteration. A worker that receives it late has already finished.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.barriers import Cut, Processed, Progress, Release
from controlplane.policies.barriers.adaptive import Noise, note_loss, ratio_by_noise
from controlplane.policies.barriers.bsp import Bsp
from controlplane.policies.catalogue.barriers import AggressiveParameters
from controlplane.policies.wording import number


class Tally(msgspec.Struct, kw_only=True):
    """The state of one iteration that is not complete."""

    total: int
    samples: dict[int, int] = {}
    processed: int = 0
    """Sum of ``samples``."""
    fastest: int | None = None
    """The worker that requested the synchronization first."""
    is_cut: bool = False


class AggressiveState(msgspec.Struct, kw_only=True):
    """Open iterations, and the noise of the loss."""

    tallies: dict[int, Tally] = {}
    closed: int = -1
    noise: Noise = msgspec.field(default_factory=Noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggressive:
    """A synchronous barrier with partial processing."""

    name: ClassVar[str] = "aggressive"
    synchronous: ClassVar[bool] = True
    state_type: ClassVar[type[msgspec.Struct]] = AggressiveState

    parameters: AggressiveParameters

    @property
    def report_s(self) -> float:
        """The paper's heartbeat interval, by default."""
        return self.parameters.report_s

    def release(self, progress: Progress) -> dict[int, Release]:
        """As BSP: the work is cut short, not the barrier."""
        return Bsp().release(progress)

    def begin(self, left: Mapping[int, int], state: AggressiveState | None) -> tuple[AggressiveState, list[Cut]]:
        """Drop workers that left: neither their progress nor their shares count, unless they had finished."""
        kept = AggressiveState() if state is None else state
        cuts: list[Cut] = []
        for iteration, tally in sorted(kept.tallies.items()):
            for rank, share in left.items():
                if tally.samples.get(rank, 0) < share:
                    tally.processed -= tally.samples.pop(rank, 0)
                    tally.total -= share
            if (cut := self._decide(iteration, tally, kept.noise)) is not None:
                cuts.append(cut)
        return kept, cuts

    def observe(self, processed: Processed, state: AggressiveState) -> tuple[AggressiveState, Cut | None]:
        """Alg. 1, lines 3 to 8."""
        if processed.iteration <= state.closed:
            return state, None
        tally = state.tallies.get(processed.iteration)
        if tally is None:
            tally = state.tallies[processed.iteration] = Tally(total=processed.total)
        known = tally.samples.get(processed.rank, 0)
        # Messages of one worker are in order, but a worker that repeats an iteration begins at zero.
        tally.samples[processed.rank] = max(known, processed.samples)
        tally.processed += tally.samples[processed.rank] - known
        if processed.requests and tally.fastest is None:
            tally.fastest = processed.rank
        if processed.loss is not None:
            note_loss(state.noise, processed.iteration, processed.loss, processed.samples)
        return state, self._decide(processed.iteration, tally, state.noise)

    def close(self, iteration: int, state: AggressiveState) -> AggressiveState:
        """Complete iterations need no more decisions."""
        state.closed = iteration
        state.tallies = {number: tally for number, tally in state.tallies.items() if number > iteration}
        return state

    def _decide(self, iteration: int, tally: Tally, noise: Noise) -> Cut | None:
        if tally.is_cut or tally.fastest is None or tally.total <= 0:
            return None
        configured = self.parameters.ratio
        needed = ratio_by_noise(noise) if configured == "adaptive" else configured
        ratio = tally.processed / tally.total
        if ratio < needed or tally.processed >= tally.total:
            return None
        tally.is_cut = True
        amount = f"{number(tally.processed)} of {number(tally.total)} samples are processed"
        reason = (
            f"w{tally.fastest} has finished iteration {iteration} and {amount} ({ratio:.2f}, asked for {needed:.2f})"
        )
        return Cut(
            iteration=iteration,
            processed=tally.processed,
            total=tally.total,
            reason=f"{reason}: all stop and synchronize",
        )
