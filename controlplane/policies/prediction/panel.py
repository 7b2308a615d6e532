"""Runs several predictors on the same observations: one is used for decisions, and the error of each is recorded.

The others are *shadows*. They get the same input as the active one, and their forecasts are compared with the measured
speeds, so that there is evidence for promoting one of them. Scores include the iteration time that a forecast leads to
and its error (ruling 8).
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from controlplane.core.choices import Finding, Lesson, PredictorScore
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.batching.settling import Habit
from controlplane.policies.prediction.bounded import bounded, is_plausible
from controlplane.policies.prediction.interface import Measured, Predictor
from controlplane.protocol.base import Value

EVEN = "even shares"
"""The result of shares without any prediction, which predictions must beat (ruling 11)."""


class Tally(Value, frozen=True, kw_only=True):
    """Sums since the last scores."""

    iterations: int = 0
    forecasts: int = 0
    squares: float = 0.0
    relatives: float = 0.0
    slowdown: float = 0.0

    def plus(self, guesses: Mapping[int, float], speeds: Mapping[int, float]) -> "Tally":
        """Add one iteration: forecasts and speeds of the same ranks."""
        squares = relatives = 0.0
        for rank, speed in speeds.items():
            error = guesses[rank] - speed
            squares += error**2
            relatives += (error / speed) ** 2
        return Tally(
            iterations=self.iterations + 1,
            forecasts=self.forecasts + len(speeds),
            squares=self.squares + squares,
            relatives=self.relatives + relatives,
            slowdown=self.slowdown + slowdown(guesses, speeds),
        )

    def score(self) -> PredictorScore:
        """The means as a score."""
        return PredictorScore(
            iterations=self.iterations,
            rmse=math.sqrt(self.squares / self.forecasts),
            relative=math.sqrt(self.relatives / self.forecasts),
            slowdown=self.slowdown / self.iterations,
        )


NOTHING = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """``predictors``: the active one first, then its shadows; each name once."""

    predictors: tuple[Predictor, ...]
    score_every: int
    state_type: type[msgspec.Struct] = field(init=False, repr=False)
    """A struct with a field for each predictor's own state."""
    _states_type: type[msgspec.Struct] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kinds = tuple((predictor.name, predictor.state_type) for predictor in self.predictors)
        object.__setattr__(self, "state_type", _state_type(kinds))
        object.__setattr__(self, "_states_type", _states_type(kinds))

    def start(self) -> Any:
        """A state without observations."""
        states = {predictor.name: predictor.start() for predictor in self.predictors}
        return self.state_type(acting=self.predictors[0].name, states=self._states_type(**states))

    def observe(self, measured: Mapping[int, Measured], state: Any) -> Any:
        """Compare every predictor's forecast with the measured speeds, then pass it the iteration (``bounded``)."""
        limited, recent, begins = bounded(measured, state.recent)
        counted = {rank: seen for rank, seen in measured.items() if is_plausible(seen, limited[rank])}
        tallies = self._compare(counted, state)
        if begins:
            state = self.keep(recent.keys() - begins, state)
        states = {p.name: p.observe(limited, getattr(state.states, p.name)) for p in self.predictors}
        return self._with_states(state, states, tallies=tallies, recent=recent)

    def keep(self, ranks: Collection[int], state: Any) -> Any:
        """The state for a new roster, without a held-back proposal."""
        states = {p.name: p.keep(ranks, getattr(state.states, p.name)) for p in self.predictors}
        recent = {rank: speeds for rank, speeds in state.recent.items() if rank in ranks}
        return self._with_states(state, states, recent=recent, habit=Habit(noise=state.habit.noise))

    def carry(self, before: "Panel", state: Any) -> Any:
        """A state of this panel with the parts that still fit of ``state``, the state of the panel ``before``."""
        known = {predictor.name: predictor for predictor in before.predictors}
        states = {
            p.name: p.carry(known[p.name], getattr(state.states, p.name)) if p.name in known else p.start()
            for p in self.predictors
        }
        first = self.predictors[0].name
        keeps_active = first == before.predictors[0].name and state.acting in states
        state = self.state_type(
            acting=state.acting if keeps_active else first,
            states=self._states_type(**states),
            flagged=state.flagged,
            recent=state.recent,
        )
        return self._with_states(state, states)

    def speeds(self, state: Any) -> dict[int, float]:
        """Predictions of the active predictor: samples per second of every rank with enough measurements."""
        return state.forecasts[state.acting] if state.forecasts else {}

    def request_lesson(self, state: Any) -> tuple[Any, list[Lesson]]:
        """Lessons that are due now."""
        lessons = []
        for predictor in self.predictors:
            request = getattr(predictor, "request_lesson", None)
            own, lesson = request(getattr(state.states, predictor.name)) if request else (None, None)
            if lesson is not None:
                states = msgspec.structs.replace(state.states, **{predictor.name: own})
                state = msgspec.structs.replace(state, states=states)
                lessons.append(lesson)
        return state, lessons

    def score(self, state: Any) -> tuple[Any, dict[str, PredictorScore], list[Finding]]:
        """Scores since the last time, if they are due, and a finding if predictions are no better than even shares."""
        acting = state.tallies.get(state.acting)
        if acting is None or acting.iterations < self.score_every:
            return state, {}, []
        scores = {name: tally.score() for name, tally in state.tallies.items() if tally.forecasts and name != EVEN}
        findings, flagged = _judge(scores[state.acting], state.tallies[EVEN].score(), state)
        return msgspec.structs.replace(state, tallies={}, flagged=flagged), scores, findings

    def learn(self, state: Any, outcome: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """See ``core.choices.Learner``."""
        predictor = self._named(outcome.predictor)
        if isinstance(outcome, PredictorPromoted):
            sentence = f"{outcome.actor} promoted {outcome.predictor}: shares follow it instead of {state.acting}"
            return msgspec.structs.replace(state, acting=outcome.predictor), outcome.predictor, sentence
        learn = getattr(predictor, "learn", None)
        if learn is None:
            raise ValueError(f"{outcome.predictor} has nothing to be trained")
        own, sentence = learn(getattr(state.states, outcome.predictor), outcome)
        states = {p.name: getattr(state.states, p.name) for p in self.predictors} | {outcome.predictor: own}
        return self._with_states(state, states), state.acting, sentence

    def _named(self, name: str) -> Predictor:
        for predictor in self.predictors:
            if predictor.name == name:
                return predictor
        names = ", ".join(predictor.name for predictor in self.predictors)
        raise ValueError(f"found predictor {name}, expected one of those that observe this job: {names}")

    def _with_states(self, state: Any, states: Mapping[str, Any], **changes: Any) -> Any:
        forecasts = {predictor.name: predictor.predict(states[predictor.name]) for predictor in self.predictors}
        return msgspec.structs.replace(state, states=self._states_type(**states), forecasts=forecasts, **changes)

    def _compare(self, measured: Mapping[int, Measured], state: Any) -> dict[str, Tally]:
        tallies = dict(state.tallies)
        if not state.forecasts:
            return tallies
        speeds = {rank: seen.speed for rank, seen in measured.items()}
        for name, guesses in (*state.forecasts.items(), (EVEN, dict.fromkeys(speeds, 1.0))):
            known = {rank: speed for rank, speed in speeds.items() if rank in guesses}
            if known:
                tallies[name] = tallies.get(name, NOTHING).plus(guesses, known)
        return tallies


def slowdown(guesses: Mapping[int, float], speeds: Mapping[int, float]) -> float:
    """Time of an iteration with shares in proportion to ``guesses``, over that with shares by the true speeds."""
    whole = longest = 0.0
    for rank, speed in speeds.items():
        guess = guesses[rank]
        if 0 < guess < math.inf:  # other values are not speeds: such a worker would get no samples
            whole += guess
            longest = max(longest, guess / speed)
    return longest * sum(speeds.values()) / whole if whole > 0 else 1.0


def _judge(acting: PredictorScore, even: PredictorScore, state: Any) -> tuple[list[Finding], int | None]:
    """Ruling 11: report when shares by predictions are worse than even ones, since speeds change too fast, and when
    they are better again.
    """
    compared = (
        f"over {acting.iterations} iterations the shares by {state.acting} would have taken {acting.slowdown:.2f} "
        f"times the least possible time, {EVEN} {even.slowdown:.2f} times"
    )
    if acting.slowdown > even.slowdown and state.flagged is None:
        rank = min(state.forecasts[state.acting])
        sentence = f"predictions keep missing: {compared}; speeds change faster than they can be followed"
        return [Finding(rank=rank, kind="prediction", open=True, sentence=sentence)], rank
    if acting.slowdown <= even.slowdown and state.flagged is not None:
        finding = Finding(rank=state.flagged, kind="prediction", open=False, sentence=f"predictions hold: {compared}")
        return [finding], None
    return [], state.flagged


@cache
def _states_type(kinds: tuple[tuple[str, type[msgspec.Struct]], ...]) -> type[msgspec.Struct]:
    return msgspec.defstruct("PredictorStates", list(kinds), frozen=True, kw_only=True)


@cache
def _state_type(kinds: tuple[tuple[str, type[msgspec.Struct]], ...]) -> type[msgspec.Struct]:
    fields: list[Any] = [
        ("acting", str),
        ("states", _states_type(kinds)),
        ("forecasts", dict[str, dict[int, float]], {}),
        ("tallies", dict[str, Tally], {}),
        ("flagged", int | None, None),
        ("recent", dict[int, tuple[float, ...]], {}),
        ("habit", Habit, Habit()),
    ]
    return msgspec.defstruct("PanelState", fields, frozen=True, kw_only=True)
