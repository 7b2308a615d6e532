"""A guard that forecasts the loss from the global batches before a change.

The logarithm of the loss is fitted linearly to the logarithm of the samples (learning curves are close to power laws).
The forecast continues that line with a fraction of its slope: most curves flatten, and a forecast that is too low would
make a harmless change look harmful. After the change, the mean loss over ``SPAN`` global batches, relative to its
forecast, is compared with a limit: ``NOISE`` standard errors of the fit, but at least the tolerance. It is the mean of
losses, not of their logarithms, so that a burst counts in full. Many changes disturb the loss for some iterations and
then do no harm, so an excess counts only while it does not shrink from one span to the next. At the end of the judging
period, the mean of all batches after the first span is compared with a lower limit (``NOISE_AT_END``), since more
batches are more evidence. A diverging loss, ``RUNAWAY`` times the limit in each of a few batches, counts immediately,
since restoring the policies would not undo the damage.

Two losses are judged: the training loss, and the held-out loss if it is evaluated often enough. All evaluations use the
same samples, so they show small excesses that sampling noise hides in the training loss.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from controlplane.core.choices import Judgement
from controlplane.protocol.base import Value
from controlplane.protocol.guard import Guard

SPAN: Final = 12
"""Global batches whose mean excess is judged."""

NOISE: Final = 8.0
"""Standard errors of a span's mean. The number is high because losses of neighbouring batches are correlated."""

RUNAWAY: Final = 8.0
RUNAWAY_SPAN: Final = 4
"""Number of global batches that must each exceed the limit that far."""

NOISE_AT_END: Final = 4.0

SLOPE: Final = 0.3
"""The fraction of the fitted slope that the forecast uses."""

LEAST: Final = 1e-9
"""Smaller losses are clipped, since their logarithms would be meaningless."""

LEAST_EVALUATED: Final = 10
"""Global batches with an evaluation before a change that a forecast of the held-out loss requires."""

DIVERGED: Final = math.log(1e6)
"""NaN counts as a loss this far above the forecast's level, and at least as this value; so do larger losses."""

HUGE: Final = 1e100
"""No loss counts as larger. A held-out loss that is not a number counts as this in the sum of its global batch."""


class Forecast(Value, frozen=True, kw_only=True):
    """A line through the losses before a change: ``level + slope * (log(samples) - origin)``, in logarithms."""

    level: float
    slope: float
    origin: float
    deviation: float
    """Standard deviation of the losses around the line."""
    spread: float = 0.0
    """Difference between the logarithm of the mean loss and the mean logarithm."""

    def at(self, samples: float) -> float:
        """The logarithm of the expected loss; ``samples`` is the logarithm of the number of samples."""
        return self.level + SLOPE * min(self.slope, 0.0) * (samples - self.origin)

    def excess(self, of_each: Sequence[float]) -> float:
        """The logarithm of the ratio of the mean loss to its forecast; ``of_each``: log ratios of each batch to the
        line.
        """
        highest = max(of_each)
        return highest + math.log(math.fsum(math.exp(x - highest) for x in of_each) / len(of_each)) - self.spread


class GuardState(Value, frozen=True, kw_only=True):
    """Everything that its judgements depend on."""

    samples: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    """Logarithms of the losses of the latest global batches under the present policies."""
    forecast: Forecast | None = None
    """While a change is judged."""
    excess: tuple[float, ...] = ()
    """Log ratio of each global batch since the change to the forecast."""
    scores: tuple[float | None, ...] = ()
    """As ``losses``, for the held-out split; None if it was not evaluated in that batch."""
    score_forecast: Forecast | None = None
    """While a change is judged, if there were enough evaluations before it."""
    score_excess: tuple[float | None, ...] = ()
    pending: float = 0.0
    """The sum of held-out losses since the last global batch."""
    evaluations: int = 0
    """The number of these evaluations."""


class LossForecast:
    """The guard. Its input counts of samples increase."""

    name = "loss-forecast"
    state_type = GuardState

    def __init__(self, parameters: Guard) -> None:
        self._of = parameters

    def start(self) -> GuardState:
        """Nothing is known."""
        return GuardState()

    def is_ready(self, state: GuardState) -> bool:
        """Whether a change that took effect now could be judged: enough batches are known, and no other change is being
        judged.
        """
        return state.forecast is None and len(state.losses) >= self._of.reference and not self.is_blind(state)

    def is_blind(self, state: GuardState) -> bool:
        """Whether the losses cannot be judged: the script reports none, or some are at most ``LEAST``."""
        return _is_blind(state.losses)

    def relaxed(self, state: GuardState) -> tuple[GuardState, Judgement | None]:
        """Relaxed policies take effect; a judgement if there is too little to compare them with."""
        if state.forecast is not None:  # policies were relaxed further: the comparison stays
            return replace(state, excess=(), score_excess=()), None
        found, needed = len(state.losses), self._of.reference
        if found < needed:
            reason = (
                f"cannot judge whether the change harms convergence: only {found} global batches were measured under"
                f" the policies before it, and {needed} are needed"
            )
            return GuardState(), Judgement(verdict="unknown", batches=0, reason=reason)
        if self.is_blind(state):
            reason = (
                f"cannot judge whether the change harms convergence: training losses of at most {LEAST} were reported,"
                " and larger ones are needed, since their ratios are compared"
            )
            return GuardState(), Judgement(verdict="unknown", batches=0, reason=reason)
        scored = [(x, y) for x, y in zip(state.samples, state.scores, strict=True) if y is not None]
        is_scored = len(scored) >= LEAST_EVALUATED and not _is_blind([y for _, y in scored])
        return GuardState(
            forecast=fitted(state.samples, state.losses),
            score_forecast=fitted([x for x, _ in scored], [y for _, y in scored]) if is_scored else None,
        ), None

    def restored(self, state: GuardState) -> GuardState:
        """Stricter policies take effect, or samples are repeated: earlier losses no longer count."""
        return GuardState()

    def evaluated(self, loss: float, state: GuardState) -> GuardState:
        """Add the loss of a version of the parameters on the held-out split."""
        return replace(
            state,
            pending=state.pending + (max(loss, 0.0) if math.isfinite(loss) else HUGE),
            evaluations=state.evaluations + 1,
        )

    def observe(self, samples: int, loss: float, state: GuardState) -> tuple[GuardState, Judgement | None]:
        """Add the mean loss over one more global batch, after ``samples`` samples in total."""
        # Snapshots of earlier releases have no scores.
        scores = state.scores or (None,) * len(state.losses)
        x, y = math.log(max(1, samples)), _logarithm(loss, state.forecast, state.losses)
        score = None
        if state.evaluations:
            mean = state.pending / state.evaluations if state.pending < HUGE else math.nan
            score = _logarithm(mean, state.score_forecast, _known(scores))
        state = replace(
            state,
            samples=(*state.samples, x)[-self._of.reference :],
            losses=(*state.losses, y)[-self._of.reference :],
            scores=(*scores, score)[-self._of.reference :],
            pending=0.0,
            evaluations=0,
        )
        forecast, of_scores = state.forecast, state.score_forecast
        if forecast is None:
            return state, None
        state = replace(state, excess=(*state.excess, y - forecast.at(x)))
        if of_scores is not None:
            over = score - of_scores.at(x) if score is not None else None
            state = replace(state, score_excess=(*state.score_excess, over))
        judgement = self._judge(state, forecast, x)
        if judgement is None:
            return state, None
        if judgement.verdict == "harmful":
            return GuardState(), judgement
        return replace(state, forecast=None, excess=(), score_forecast=None, score_excess=()), judgement

    def _judge(self, state: GuardState, forecast: Forecast, samples: float) -> Judgement | None:
        if self._runs_away(state, forecast):
            last = state.excess[-RUNAWAY_SPAN:]
            return self._judgement(state, forecast, samples, last, NOISE, is_harmful=True)
        found = [self._judged(state, forecast, samples, state.excess)]
        if state.score_forecast is not None:
            of = "the held-out loss"
            found.append(self._judged(state, state.score_forecast, samples, state.score_excess, of))
        harmful = (each for each in found if each is not None and each.verdict == "harmful")
        return next(harmful, found[0])

    def _judged(
        self,
        state: GuardState,
        forecast: Forecast,
        samples: float,
        excess: Sequence[float | None],
        of: str = "the training loss",
    ) -> Judgement | None:
        """The judgement by one of the two losses; None if it is too early, or the loss was not measured."""
        if len(excess) >= self._of.judge_within:
            rest = _known(excess[SPAN:])
            is_harmful = bool(rest) and forecast.excess(rest) > self._limit(forecast, len(rest), NOISE_AT_END)
            return self._judgement(state, forecast, samples, rest, NOISE_AT_END, of, is_harmful=is_harmful)
        now, before = _known(excess[-SPAN:]), _known(excess[-2 * SPAN : -SPAN])
        if not now or not before or len(excess) < 2 * SPAN:
            return None
        mean = forecast.excess(now)
        if mean <= self._limit(forecast, len(now)) or mean < forecast.excess(before):
            return None
        return self._judgement(state, forecast, samples, now, NOISE, of, is_harmful=True)

    def _limit(self, forecast: Forecast, span: int, noise: float = NOISE) -> float:
        """The mean excess over ``span`` batches above which a change is harmful."""
        return max(noise * forecast.deviation / math.sqrt(span), math.log1p(self._of.tolerance))

    def _runs_away(self, state: GuardState, forecast: Forecast) -> bool:
        limit = self._limit(forecast, RUNAWAY_SPAN) + math.log(RUNAWAY)
        return len(state.excess) >= RUNAWAY_SPAN and min(state.excess[-RUNAWAY_SPAN:]) > limit

    def _judgement(
        self,
        state: GuardState,
        forecast: Forecast,
        samples: float,
        excess: Sequence[float],
        noise: float,
        of: str = "the training loss",
        *,
        is_harmful: bool,
    ) -> Judgement:
        count, diverged = len(state.excess), state.losses[-1] >= _most(forecast)
        expected = math.exp(forecast.at(samples) + forecast.spread)
        highest = expected * math.exp(self._limit(forecast, max(1, len(excess)), noise))
        measured = expected * math.exp(forecast.excess(excess)) if excess else expected
        shown = "is not a number, or a million times as large" if diverged else f"is {measured:.4g}"
        reason = (
            f"{count} global batches after the change, {of} {shown}; {expected:.4g} was expected from the"
            f" batches before it, and more than {highest:.4g} counts as harm"
        )
        return Judgement(
            verdict="harmful" if is_harmful else "harmless",
            batches=count,
            measured=None if diverged else measured,
            expected=expected,
            limit=highest,
            reason=reason,
        )


def _logarithm(loss: float, forecast: Forecast | None, earlier: Sequence[float]) -> float:
    """Of a loss: limited by the forecast while a change is judged; before, NaN is no less than most earlier losses."""
    if forecast is not None:
        most = _most(forecast)
        return min(math.log(max(loss, LEAST)), most) if math.isfinite(loss) else most
    if math.isfinite(loss):
        return math.log(min(max(loss, LEAST), HUGE))
    return max(DIVERGED, statistics.median(earlier)) if earlier else DIVERGED


def _most(forecast: Forecast) -> float:
    """What a diverged loss counts as."""
    return max(forecast.level, 0.0) + DIVERGED


def _is_blind(losses: Sequence[float]) -> bool:
    return bool(losses) and min(losses) <= math.log(LEAST)


def _known(excess: Sequence[float | None]) -> list[float]:
    return [each for each in excess if each is not None]


def fitted(samples: Sequence[float], losses: Sequence[float]) -> Forecast:
    """Least-squares line through log(loss) over log(samples), shifted up to the latest losses if they are above it."""
    count = len(losses)
    origin = samples[-1]
    mean_x, mean_y = math.fsum(samples) / count, math.fsum(losses) / count
    spread = math.fsum((x - mean_x) ** 2 for x in samples)
    together = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(samples, losses, strict=True))
    slope = together / spread if spread else 0.0
    level = mean_y + slope * (origin - mean_x)
    squares = math.fsum((y - level - slope * (x - origin)) ** 2 for x, y in zip(samples, losses, strict=True))
    # If a curve flattens, the line ends below it.
    level = max(level, math.fsum(losses[-SPAN:]) / min(SPAN, count))
    found = Forecast(level=level, slope=slope, origin=origin, deviation=math.sqrt(squares / max(1, count - 2)))
    over = [y - mean_y - slope * (x - mean_x) for x, y in zip(samples, losses, strict=True)]
    return replace(found, spread=found.excess(over))
