"""Probabilistic synchronous parallel (PSP section 3): the barrier compares a worker with a sample of the others.

If one of the sampled lags more than s iterations behind the worker, the worker waits: pBSP with s = 0, pSSP with s > 0
(section 3.2). The paper does not say what a waiting worker does; ruling 22 does. ``redrawn``: it draws a new sample
whenever a worker that it waits for reports, and after a fraction of its own iteration time (``recheck``). ``held``: it
waits until every worker in its first sample has passed.

Waiting workers are indexed by the workers that they wait for, so a report costs the same for any number of workers. A
large sample is drawn only if some worker is far enough behind to matter. The slowest worker never waits, so some worker
always continues.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import ClassVar

import msgspec

from controlplane.core.barriers import Arrival, Members, Passage, Release, StepScale, Wait
from controlplane.policies.barriers.sampling import Population, measure, populate, sample
from controlplane.policies.catalogue.barriers import PbspParameters, PsspParameters
from controlplane.policies.wording import iterations, workers

LEAST_RECHECK_MS = 10
"""Shortest interval between checks of a waiting worker, however short its iterations are."""


class Waiting(msgspec.Struct, kw_only=True):
    """A worker that waits, with its newest sample."""

    behind: list[int]
    """The workers in the sample that are too far behind it."""
    attempt: int
    """How many samples it has drawn before during this wait."""
    after_ms: int | None
    """Time until the next check if no worker in ``behind`` reports before; None: only such a report triggers one."""
    due_ms: int | None
    """The time of that check."""


class PspState(msgspec.Struct, kw_only=True):
    """The progress of every worker, which can be sampled, and which wait for which."""

    population: Population
    done: dict[int, int]
    levels: dict[int, int]
    """By iteration: how many workers have finished it and not the next one."""
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
    staleness: int = field(init=False, default=0)
    """How far sampled workers may be behind."""

    def __post_init__(self) -> None:
        """Precompute what every report needs."""
        if isinstance(self.parameters, PsspParameters):
            object.__setattr__(self, "staleness", self.parameters.staleness)

    @property
    def holds_updates(self) -> bool:
        """With ``literal``, as in Alg. 1."""
        return self.parameters.literal

    @property
    def step_scale(self) -> StepScale:
        """The weight of an update; updates released together make one step of their combined length."""
        return self.parameters.step_scale

    def start(self, members: Members, state: PspState | None) -> tuple[PspState, Passage]:
        """Check every stopped worker; times per iteration are kept from the previous generation."""
        before = None if state is None else state.population
        population = populate(list(members.done), members.seed, self.parameters, before)
        levels = dict(Counter(members.done.values()))
        state = PspState(population=population, done=dict(members.done), levels=levels, slowest=min(levels, default=0))
        passage = Passage(releases={}, waits={})
        for rank in sorted(members.done):
            if members.watermark[rank] <= members.done[rank]:
                self._examine(state, rank, members.at_ms, passage)
        return state, passage

    def arrive(self, arrival: Arrival, state: PspState) -> tuple[PspState, Passage]:
        """Check the worker, unless it is already granted an iteration, and the workers that waited for it."""
        _count(state, arrival)
        measure(state.population, arrival.rank, arrival.busy_s, self.parameters)
        passage = Passage(releases={}, waits={})
        if arrival.watermark <= arrival.done:
            self._examine(state, arrival.rank, arrival.at_ms, passage)
        if (watching := state.watched.pop(arrival.rank, None)) is not None:
            for rank in sorted(watching):
                waiting = state.waiting.get(rank)
                if waiting is not None and arrival.rank in waiting.behind:
                    self._examine_again(state, rank, waiting, arrival.at_ms, passage)
        return state, passage

    def recheck_at_ms(self, state: PspState) -> int | None:
        """When the first waiting worker may try another sample."""
        return state.recheck_ms

    def recheck(self, at_ms: int, state: PspState) -> tuple[PspState, Passage]:
        """Workers that have waited long enough try another sample."""
        passage = Passage(releases={}, waits={})
        due = [
            (waiting.due_ms, rank, waiting)
            for rank, waiting in state.waiting.items()
            if waiting.due_ms is not None and waiting.due_ms <= at_ms
        ]
        for _, rank, waiting in sorted(due, key=itemgetter(0, 1)):
            self._examine_again(state, rank, waiting, at_ms, passage)
        left = [waiting.due_ms for waiting in state.waiting.values() if waiting.due_ms is not None]
        state.recheck_ms = min(left, default=None)
        return state, passage

    def _examine(self, state: PspState, rank: int, at_ms: int, passage: Passage) -> None:
        """Release a worker that has finished an iteration, or let it wait for the workers in its sample that are too
            far
        behind. Only the beginning of a wait is logged as a decision: a wait may take many samples.
        """
        population, done = state.population, state.done[rank]
        if done - state.slowest <= self.staleness:  # no worker is too far behind, so any sample would pass
            passage.releases[rank] = Release(watermark=done + 1, reason=self._passes(population.others, 0))
            return
        sampled = sample(population, self.parameters, rank, done + 1, 0)
        behind = self._behind(state, done, sampled)
        if not behind:
            passage.releases[rank] = Release(watermark=done + 1, reason=self._passes(population.others, 0))
            return
        passage.waits[rank] = self._wait(state, rank, sampled, behind)
        waiting = Waiting(behind=behind, attempt=0, after_ms=self._after_ms(population, rank), due_ms=None)
        state.waiting[rank] = waiting
        _watch(state, rank, waiting, at_ms)

    def _examine_again(self, state: PspState, rank: int, waiting: Waiting, at_ms: int, passage: Passage) -> None:
        """Draw another sample for a waiting worker; release it, or let it wait for workers in this sample."""
        population, done = state.population, state.done[rank]
        waiting.attempt += 1
        if done - state.slowest > self.staleness:
            sampled = sample(population, self.parameters, rank, done + 1, waiting.attempt)
            waiting.behind = self._behind(state, done, sampled)
            if waiting.behind:
                _watch(state, rank, waiting, at_ms)
                return
        del state.waiting[rank]
        passage.releases[rank] = Release(watermark=done + 1, reason=self._passes(population.others, waiting.attempt))

    def _behind(self, state: PspState, done: int, sampled: list[int]) -> list[int]:
        others, least = state.done, done - self.staleness
        return [other for other in sampled if others[other] < least]

    def _after_ms(self, population: Population, rank: int) -> int | None:
        parameters = self.parameters
        redrawn = parameters.resample == "redrawn" and parameters.strategy != "fixed"
        if not redrawn or not parameters.recheck or parameters.sample >= population.others:
            return None
        return max(LEAST_RECHECK_MS, int(parameters.recheck * population.busy_s.get(rank, 0.0) * 1000))

    def _passes(self, others: int, attempt: int) -> str:
        return _passing(self.parameters.sample, others, self.staleness, attempt)

    def _wait(self, state: PspState, rank: int, sampled: list[int], behind: list[int]) -> Wait:
        last = min(behind, key=lambda other: (state.done[other], other))
        far = iterations(state.done[rank] - state.done[last])
        more = f" and {len(behind) - 1} more" if len(behind) > 1 else ""
        reason = f"waits for w{last}, {far} behind,{more} among the sampled {workers(sampled)}{self._clamped(sampled)}"
        return Wait(waits_for=behind, reason=reason)

    def _clamped(self, sampled: list[int]) -> str:
        return _clamping(self.parameters.sample, len(sampled))


@lru_cache(maxsize=256)
def _passing(sample: int, others: int, staleness: int, attempt: int) -> str:
    """Why a worker continues. The sampled workers are not named, so that the sentence can be shared."""
    count = min(sample, others)
    if not count:
        return "no worker is sampled: it continues as it finishes"
    allowed = f"more than {iterations(staleness)} behind" if staleness else "behind"
    tried = f"; before, {attempt:,} had some" if attempt else ""
    return f"no worker in a sample of {count} is {allowed}{_clamping(sample, count)}{tried}"


def _clamping(sample: int, count: int) -> str:
    return f" (a sample of {sample} was asked for, there are {count} others)" if sample > count else ""


def _watch(state: PspState, rank: int, waiting: Waiting, at_ms: int) -> None:
    """Check it again when a worker that it waits for reports, or at its next check."""
    watched = state.watched
    for other in waiting.behind:
        if (watching := watched.get(other)) is None:
            watched[other] = {rank: True}
        else:
            watching[rank] = True
    if waiting.after_ms is None:
        return
    # On a common time grid, so that a thousand waiting workers do not cause a thousand checks per second.
    grid_ms = 1 << (waiting.after_ms.bit_length() - 1)
    waiting.due_ms = due_ms = -(-(at_ms + waiting.after_ms) // grid_ms) * grid_ms
    if state.recheck_ms is None or due_ms < state.recheck_ms:
        state.recheck_ms = due_ms


def _count(state: PspState, arrival: Arrival) -> None:
    """Record a worker's progress."""
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
