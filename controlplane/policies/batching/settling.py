"""Decides whether new shares are worth adopting: their gain must exceed the noise of the measurements.

Predictions change with every measurement, and shares would follow them forever, by one sample here and there, sometimes
for the worse. New shares are adopted if their predicted gain exceeds the noise of measurements. A smaller gain that
lasts is adopted too: the gain of the held-back proposal is evaluated on later measurements, on which a proposal from
noise gains nothing.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from controlplane.core.choices import ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import Limits
from controlplane.protocol.base import Value

LEAST_GAIN: Final = 0.003
"""Smallest gain of new shares, as a fraction of the iteration time."""

NOISES: Final = 0.5
"""A gain must exceed this multiple of the typical error of one worker's prediction. It is below the error itself
because single measurements are noisier than the smoothed predictions.
"""

MEMORY: Final = 0.2
"""Weight of the latest measurement in the typical error and in the missed gain."""


class Habit(Value, frozen=True, kw_only=True):
    """The state between decisions."""

    noise: float = 0.0
    """Typical relative error of a prediction of one worker's time."""
    missed: float = 0.0
    """Mean gain that the latest held-back proposals would have had; 0 if none was held back."""
    proposed: dict[int, int] = {}
    """The last proposal that was held back."""

    @property
    def threshold(self) -> float:
        """The required gain of new shares."""
        lasting = NOISES * self.noise * math.sqrt(MEMORY / (2 - MEMORY))
        if self.missed > max(LEAST_GAIN, lasting):
            return LEAST_GAIN
        return max(LEAST_GAIN, NOISES * self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A worker's measured and expected time for its samples."""

    samples: int
    busy_s: float
    per_sample: float
    """Seconds for one more sample."""
    expected_s: float | None = None


def learn(habit: Habit, taken: Mapping[int, Taken]) -> Habit:
    """Update the state with one more measured iteration."""
    errors = [abs(one.busy_s / one.expected_s - 1) for one in taken.values() if one.expected_s and one.busy_s > 0]
    noise = habit.noise
    if errors:
        noise += MEMORY * (min(1.0, statistics.median(errors)) - noise)
    missed = habit.missed
    known = [rank for rank in taken if rank in habit.proposed]
    if known:
        was_s = max(taken[rank].busy_s for rank in known)
        would_s = max(_after(taken[rank], habit.proposed[rank]) for rank in known)
        gain = 1 - would_s / was_s if was_s > 0 else 0.0
        missed += MEMORY * (max(-1.0, gain) - missed)
    return msgspec.structs.replace(habit, noise=noise, missed=missed)


def settle(
    request: ShareRequest,
    decision: ShareDecision,
    limits: Limits,
    habit: Habit,
    *,
    gain: float | None,
    objective: str = "time",
) -> tuple[Habit, ShareDecision]:
    """The decision, or one that keeps the present shares because the gain is too small.

    Args:
        request: the batching request; present shares that violate its limits are always replaced.
        decision: the best shares by the present predictions.
        limits: the limits of each rank.
        habit: the state between decisions.
        gain: predicted fraction of the iteration time that the decision saves; None if there is no prediction.
        objective: what ``gain`` is a fraction of, if not of the time.
    """
    adopted = Habit(noise=habit.noise)
    if decision.shares == request.current or gain is None or not _is_legal(request, limits):
        return adopted, decision
    if gain > habit.threshold:
        return adopted, decision
    saved = f"of the {objective}" if objective != "time" else "of the iteration"
    worth = f"new shares would save {gain:.1%} {saved}, less than the threshold of {habit.threshold:.1%}"
    reason = f"shares stay as they are: {worth}; {decision.reason}"
    held = msgspec.structs.replace(decision, shares=dict(request.current), reason=reason)
    return msgspec.structs.replace(habit, proposed=decision.shares), held


def gain_of(before_s: Mapping[int, float], after_s: Mapping[int, float]) -> float | None:
    """Predicted gain from each known worker's time under the present and the new shares."""
    slowest_s = max(before_s.values(), default=0.0)
    return 1 - max(after_s.values()) / slowest_s if slowest_s > 0 else None


def _after(one: Taken, share: int) -> float:
    return max(0.0, one.busy_s + one.per_sample * (share - one.samples))


def _is_legal(request: ShareRequest, limits: Limits) -> bool:
    within = all(low <= request.current[rank] <= high for rank, (low, high) in limits.items())
    return within and sum(request.current.values()) == request.total
