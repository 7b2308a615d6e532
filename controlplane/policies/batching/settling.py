"""Whether a new division of shares is worth adopting: more than the noise of what it was predicted from.

Predictions change with every measurement, and shares would follow them forever, by one sample here and there,
sometimes for the worse. A new division is adopted where its predicted gain exceeds what measurements vary by. A smaller
gain that lasts is adopted too: what the present proposal would have gained is counted on measurements that were not
known when it was made, and noise does not gain anything there.
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
"""Part of the iteration's time that a new division must gain at least."""

NOISES: Final = 0.5
"""A gain must exceed so many times the typical error of one worker's prediction: much of that is of single
measurements, while what predicts is smoothed."""

MEMORY: Final = 0.2
"""Weight of the latest measurement in the typical error and in the gain that was missed."""


class Habit(Value, frozen=True, kw_only=True):
    """The state between decisions."""

    noise: float = 0.0
    """Typical relative error of a prediction of one worker's time."""
    missed: float = 0.0
    """What the latest proposals would have gained, on average, had they been adopted; 0 where none was held back."""
    proposed: dict[int, int] = {}
    """The proposal that was held back last."""

    @property
    def threshold(self) -> float:
        """The required gain of a new division."""
        lasting = NOISES * self.noise * math.sqrt(MEMORY / (2 - MEMORY))
        if self.missed > max(LEAST_GAIN, lasting):
            return LEAST_GAIN
        return max(LEAST_GAIN, NOISES * self.noise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a worker took for its samples, and what was expected of it."""

    samples: int
    busy_s: float
    per_sample: float
    """Seconds that one sample more takes."""
    expected_s: float | None = None


def learn(habit: Habit, taken: Mapping[int, Taken]) -> Habit:
    """One more iteration was measured."""
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
    """The decision, or one that leaves the shares as they are since it is not worth adopting.

    Args:
        request: what was to be divided; a present division that breaks its limits is always replaced.
        decision: the best division by the present predictions.
        limits: of each rank.
        habit: what is remembered.
        gain: predicted part of the iteration's time that the decision saves; None where nothing is predicted.
        objective: what the part is of, if not of the time.
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
    """Predicted gain, by each known worker's time under the present and the new division."""
    slowest_s = max(before_s.values(), default=0.0)
    return 1 - max(after_s.values()) / slowest_s if slowest_s > 0 else None


def _after(one: Taken, share: int) -> float:
    return max(0.0, one.busy_s + one.per_sample * (share - one.samples))


def _is_legal(request: ShareRequest, limits: Limits) -> bool:
    within = all(low <= request.current[rank] <= high for rank, (low, high) in limits.items())
    return within and sum(request.current.values()) == request.total
