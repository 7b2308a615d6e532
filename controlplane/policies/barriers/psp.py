"""Probabilistic synchronous parallel (PSP section 3): the barrier looks at a sample of the other workers.

If one of the sampled lags more than s iterations behind the worker, the worker waits: pBSP with s = 0, pSSP with s > 0
(section 3.2). What the paper leaves open is ruling 22's: ``redrawn``, a waiting worker is looked at with a new sample
whenever one of those that it waits for reports, and after a part of its own iteration time (``recheck``); ``held``,
it waits until every worker in its first sample has passed.

A waiting worker is found through those that it waits for, so that a report costs the same at any number of workers. A
large sample is drawn only if some worker is far enough behind for it to matter. The slowest worker never waits, for any
sample, so some worker always continues.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.barriers import Arrival, Members, Passage, StepScale, Wait
from controlplane.core.choices import Release
from controlplane.policies.barriers.sampling import Population, measure, populate, sample
from controlplane.policies.parameters import PbspParameters, PsspParameters
from controlplane.policies.wording import SHOWN, iterations, workers

LEAST_RECHECK_MS = 10
"""A waiting worker is not looked at more often, however short its iterations are."""


class Waiting(msgspec.Struct, kw_only=True):
    """A worker that waits, and the sample that it waits by."""

    sampled: list[int]
    behind: list[int]
    attempt: int
    due_ms: int | None
    """When it is evaluated again, if no worker in ``behind`` reports before."""


class PspState(msgspec.Struct, kw_only=True):
    """The progress of every worker, which can be sampled, and which wait for which."""

    population: Population
    done: dict[int, int]
    levels: dict[int, int]
    """How many workers have finished an iteration and not the next one, by iteration."""
    slowest: int
    """The lowest of the levels."""
    waiting: dict[int, Waiting] = {}
    watched: dict[int, dict[int, bool]] = {}
    """By worker, the ranks that may wait for it; the values mean nothing."""
    recheck_ms: int | None = None
    """At or before the first ``due_ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pssp:
    """Grants the next iteration to a worker if the sampled ones are not too far behind it."""

    name: ClassVar[str] = "pssp"
    synchronous: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = PspState

    parameters: PbspParameters

    @property
    def holds_updates(self) -> bool:
        """By the letter of Alg. 1."""
        return self.parameters.literal

    @property
    def step_scale(self) -> StepScale:
        """Of an update; updates released together make a step of their combined length."""
        return self.parameters.step_scale

    @property
    def staleness(self) -> int:
        """How far the sampled ones may be behind."""
        return self.parameters.staleness if isinstance(self.parameters, PsspParameters) else 0

    def start(self, members: Members, state: Any | None) -> tuple[PspState, Passage]:
        """Evaluate every stopped worker; times per iteration are kept from the generation before."""
        before = state.population if isinstance(state, PspState) else None
        population = populate(list(members.done), members.seed, self.parameters, before)
        levels = dict(Counter(members.done.values()))
        begun = PspState(population=population, done=dict(members.done), levels=levels, slowest=min(levels, default=0))
        passage = Passage(releases={}, waits={})
        for rank in sorted(members.done):
            if members.watermark[rank] <= members.done[rank]:
                self._examine(begun, rank, 0, members.at_ms, passage)
        return begun, passage

    def arrive(self, arrival: Arrival, state: PspState) -> tuple[PspState, Passage]:
        """Evaluate it, unless it is already granted, and workers that waited for it."""
        _count(state, arrival)
        measure(state.population, arrival.rank, arrival.busy_s, self.parameters)
        passage = Passage(releases={}, waits={})
        if arrival.watermark <= arrival.done:
            self._examine(state, arrival.rank, 0, arrival.at_ms, passage)
        if arrival.rank in state.watched:
            for rank in sorted(state.watched.pop(arrival.rank)):
                waiting = state.waiting.get(rank)
                if waiting is not None and arrival.rank in waiting.behind:
                    self._examine(state, rank, waiting.attempt + 1, arrival.at_ms, passage)
        return state, passage

    def recheck_at_ms(self, state: PspState) -> int | None:
        """When the first waiting worker may try another sample."""
        return state.recheck_ms

    def recheck(self, at_ms: int, state: PspState) -> tuple[PspState, Passage]:
        """Workers that have waited long enough try another sample."""
        passage = Passage(releases={}, waits={})
        due = [rank for rank, waiting in state.waiting.items() if waiting.due_ms is not None]
        for rank in sorted(due, key=lambda rank: (state.waiting[rank].due_ms, rank)):
            if (state.waiting[rank].due_ms or 0) <= at_ms:
                self._examine(state, rank, state.waiting[rank].attempt + 1, at_ms, passage)
        left = [waiting.due_ms for waiting in state.waiting.values() if waiting.due_ms is not None]
        state.recheck_ms = min(left, default=None)
        return state, passage

    def _examine(self, state: PspState, rank: int, attempt: int, at_ms: int, passage: Passage) -> None:
        """Release ``rank``, or let it wait for workers of its sample that are too far behind."""
        done = state.done[rank]
        count = min(self.parameters.sample, state.population.others)
        if count > SHOWN and done - state.slowest <= self.staleness:
            state.waiting.pop(rank, None)
            reason = f"nobody is {self._allowed()}, and so none of a sample of {count}"
            passage.releases[rank] = Release(watermark=done + 1, reason=reason)
            return
        sampled = sample(state.population, self.parameters, rank, done + 1, attempt)
        behind = [other for other in sampled if done - state.done[other] > self.staleness]
        if not behind:
            state.waiting.pop(rank, None)
            passage.releases[rank] = Release(watermark=done + 1, reason=self._reason(sampled))
            return
        passage.waits[rank] = self._wait(state, rank, sampled, behind)
        due_ms = self._due_ms(state, rank, at_ms)
        state.waiting[rank] = Waiting(sampled=sampled, behind=behind, attempt=attempt, due_ms=due_ms)
        for other in behind:
            state.watched.setdefault(other, {})[rank] = True
        if due_ms is not None:
            state.recheck_ms = due_ms if state.recheck_ms is None else min(state.recheck_ms, due_ms)

    def _due_ms(self, state: PspState, rank: int, at_ms: int) -> int | None:
        parameters = self.parameters
        redrawn = parameters.resample == "redrawn" and parameters.strategy != "fixed"
        if not redrawn or not parameters.recheck or parameters.sample >= state.population.others:
            return None
        after_ms = max(LEAST_RECHECK_MS, int(parameters.recheck * state.population.busy_s.get(rank, 0.0) * 1000))
        # On a common grid, so that a thousand waiting workers do not make a thousand looks per second.
        grid_ms = 1 << (after_ms.bit_length() - 1)
        return -(-(at_ms + after_ms) // grid_ms) * grid_ms

    def _reason(self, sampled: list[int]) -> str:
        if not sampled:
            return "no worker is sampled: it continues as it finishes"
        return f"none of the sampled {workers(sampled)} is {self._allowed()}{self._clamped(sampled)}"

    def _allowed(self) -> str:
        return f"more than {iterations(self.staleness)} behind" if self.staleness else "behind"

    def _wait(self, state: PspState, rank: int, sampled: list[int], behind: list[int]) -> Wait:
        last = min(behind, key=lambda other: (state.done[other], other))
        far = iterations(state.done[rank] - state.done[last])
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        reason = f"waits for w{last}, {far} behind,{more} among the sampled {workers(sampled)}{self._clamped(sampled)}"
        return Wait(waits_for=behind, reason=reason)

    def _clamped(self, sampled: list[int]) -> str:
        if self.parameters.sample <= len(sampled):
            return ""
        return f" (a sample of {self.parameters.sample} was asked for, there are {len(sampled)} others)"


def _count(state: PspState, arrival: Arrival) -> None:
    """Take in how far a worker has come."""
    before = state.done[arrival.rank]
    state.done[arrival.rank] = arrival.done
    state.levels[before] -= 1
    state.levels[arrival.done] = state.levels.get(arrival.done, 0) + 1
    while not state.levels.get(state.slowest):
        state.levels.pop(state.slowest, None)
        state.slowest += 1


class Pbsp(Pssp):
    """The same with s = 0."""

    __slots__ = ()
    name: ClassVar[str] = "pbsp"
