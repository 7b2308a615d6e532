"""Stale synchronous parallel: a worker may be at most s iterations ahead of the slowest (PSP section 2.2).

The slowest worker is tracked by counting the workers at each iteration, so that a report costs the same for any number
of workers: the lowest iteration only increases, and then releases all workers that waited for it.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import msgspec

from controlplane.core.barriers import NOTHING, Arrival, Members, Passage, Release, StepScale, Wait
from controlplane.policies.catalogue.barriers import SspParameters
from controlplane.policies.wording import SHOWN, iterations, workers


class SspState(msgspec.Struct, kw_only=True):
    """The progress of every worker."""

    done: dict[int, int]
    levels: dict[int, dict[int, bool]]
    """By iteration: the ranks that have finished it and not the next one; the values are unused."""
    slowest: int
    """The lowest of the levels."""
    waiting: dict[int, bool] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssp:
    """Grants up to s iterations beyond the current one of the slowest worker."""

    name: ClassVar[str] = "ssp"
    synchronous: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = SspState
    holds_updates: ClassVar[bool] = False

    parameters: SspParameters

    @property
    def step_scale(self) -> StepScale:
        """Of an update."""
        return self.parameters.step_scale

    def start(self, members: Members, state: Any | None) -> tuple[SspState, Passage]:
        """Workers that are not too far ahead of the slowest may continue."""
        levels: dict[int, dict[int, bool]] = {}
        for rank in sorted(members.done):
            levels.setdefault(members.done[rank], {})[rank] = True
        state = SspState(done=dict(members.done), levels=levels, slowest=min(levels, default=0))
        return state, self._examine(state, sorted(members.done), members.watermark)

    def arrive(self, arrival: Arrival, state: SspState) -> tuple[SspState, Passage]:
        """The worker may continue or must wait; if it was the last one at its iteration, waiting workers may continue
        too.
        """
        state.levels[state.done[arrival.rank]].pop(arrival.rank)
        state.levels.setdefault(arrival.done, {})[arrival.rank] = True
        state.done[arrival.rank] = arrival.done
        before = state.slowest
        while not state.levels.get(state.slowest):
            state.levels.pop(state.slowest, None)
            state.slowest += 1
        ranks = [arrival.rank]
        if state.slowest > before and state.waiting:
            ranks += sorted(state.waiting.keys() - {arrival.rank})
            state.waiting.clear()
        return state, self._examine(state, ranks, {arrival.rank: arrival.watermark})

    def recheck_at_ms(self, state: SspState) -> int | None:
        """Never: only a report of the slowest worker can release others."""
        return None

    def recheck(self, at_ms: int, state: SspState) -> tuple[SspState, Passage]:
        """No effect: only a report of the slowest worker can release others."""
        return state, NOTHING

    def _examine(self, state: SspState, ranks: list[int], granted: dict[int, int]) -> Passage:
        """Release or hold ``ranks``; one whose watermark is above its last finished iteration does not wait yet."""
        watermark = state.slowest + 1 + self.parameters.staleness
        passage = Passage(releases={}, waits={})
        release = None
        for rank in ranks:
            done = state.done[rank]
            if done < watermark:
                release = release or Release(watermark=watermark, reason=self._reason(state, watermark))
                passage.releases[rank] = release
            elif granted.get(rank, done) <= done:
                state.waiting[rank] = True
                passage.waits[rank] = self._wait(state, done)
        return passage

    def _reason(self, state: SspState, watermark: int) -> str:
        allowed = iterations(self.parameters.staleness)
        return f"the slowest has finished iteration {state.slowest}; at most {allowed} ahead of it: up to {watermark}"

    def _wait(self, state: SspState, done: int) -> Wait:
        slowest = state.levels[state.slowest]
        shown = sorted(islice(slowest, SHOWN))
        named = workers(shown, hidden=len(slowest) - len(shown))
        behind = iterations(done - state.slowest)
        allowed = iterations(self.parameters.staleness)
        return Wait(
            waits_for=shown, reason=f"waits for {named}, {behind} behind, the slowest of all; {allowed} allowed"
        )
