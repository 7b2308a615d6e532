"""Explains a finding of the detector ``evidence`` to the operator: a sentence, and its figures."""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controlplane.core.choices import Finding
from controlplane.policies.stragglers.causes import Readings, cause_of
from controlplane.policies.stragglers.verdict import Figures, Persistence
from controlplane.policies.wording import seconds

Subject = Literal["worker", "server"]

HOLDS_UP = 1.05
"""A worker that is busy for this many times as long as any other is said to keep them waiting."""

MUCH_WAITING = 0.25
"""Fraction of an iteration spent waiting from which on a worker counts as waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The latest iteration: how long each worker was busy and waited for others, and the machines' readings."""

    ranks: list[int]
    busy_s: list[float]
    waiting_s: list[float]
    readings: Readings = field(default_factory=Readings)

    def waits(self, rank: int) -> bool:
        """Whether a worker waits for others, and not they for it."""
        at = bisect_left(self.ranks, rank)
        if at == len(self.ranks) or self.ranks[at] != rank:
            return False
        return self.waiting_s[at] > MUCH_WAITING * (self.busy_s[at] + self.waiting_s[at])


def opening(
    subject: Subject, rank: int, kind: str, persistence: Persistence, shown: Figures, situation: Situation
) -> Finding:
    """The sentence for a flag that opens: how slow, by which measure, the confidence, the cause, and the cost."""
    cause, because = (
        ("network", "all its workers measure it") if subject == "server" else cause_of(kind, rank, situation.readings)
    )
    cost, costs = _cost(subject, rank, dict(zip(situation.ranks, situation.busy_s, strict=True)))
    sentence = f"{finding(subject, rank, kind, shown)}, {shown.confidence:.1%} sure; {because}; {costs}"
    evidence: dict[str, Any] = {
        "ratio": shown.ratio,
        "measure": shown.measure,
        "slow_iterations": shown.raised,
        "window": shown.window,
        "confidence": shown.confidence,
        "cause": cause,
        **cost,
    }
    return Finding(
        rank=rank,
        kind=kind,
        open=True,
        sentence=sentence,
        persistence=str(persistence),
        evidence=evidence,
        subject=subject,
    )


def finding(subject: Subject, rank: int, kind: str, shown: Figures) -> str:
    """``w5 takes 2.3 times the others' median in compute per sample, slow in 8 of the last 8 iterations``."""
    against = "the others' median" if shown.measure == "others" else "its own usual time"
    what = "compute per sample" if kind == "compute" else kind  # shares differ, so times are compared per sample
    return (
        f"{_name(subject, rank)} takes {shown.ratio:.1f} times {against} in {what}, "
        f"slow in {shown.raised} of the last {shown.window} iterations"
    )


def closing(subject: Subject, rank: int, kind: str, shown: Figures | None) -> Finding:
    """The sentence for a flag that closes: it has recovered, or can no longer be compared."""
    name = _name(subject, rank)
    if shown is None:
        return _closed(subject, rank, kind, f"{name} can no longer be compared with others or with its past")
    sentence = f"{name} has recovered in {kind}: {shown.ratio:.1f} times over the last {shown.window} iterations"
    return _closed(subject, rank, kind, sentence)


def lasts(subject: Subject, rank: int, kind: str) -> Finding:
    """The sentence for a lasting flag that replaces a transient one."""
    sentence = f"{_name(subject, rank)} has been slow for longer than a disturbance: transient becomes lasting"
    return Finding(rank=rank, kind=kind, open=False, sentence=sentence, subject=subject, escalated=True)


def forgotten(subject: Subject, rank: int, kind: str, window: int) -> Finding:
    """The sentence for a flag that closes because there is no evidence any more."""
    sentence = f"{_name(subject, rank)} was not measured for {window} iterations: not enough evidence"
    return _closed(subject, rank, kind, sentence)


def unclear(subject: Subject, rank: int, measured: int, window: int) -> str:
    """The sentence for missing evidence."""
    return (
        f"not enough evidence on {_name(subject, rank)}: comparable in {measured} of the last {window} "
        "iterations (that takes two others, or its own past and that of another)"
    )


def is_quiet(evidence: Mapping[str, Any]) -> bool:
    """Whether the finding's sentence says that it has no impact: it is listed without an alert."""
    whole, without = evidence.get("iteration_s"), evidence.get("without_s")
    return whole is not None and without is not None and 0 < whole <= HOLDS_UP * without


def _cost(subject: Subject, rank: int, busy_s: Mapping[int, float]) -> tuple[dict[str, float], str]:
    others = [busy for other, busy in busy_s.items() if other != rank]
    own = busy_s.get(rank, math.nan)
    without = max(others, default=own)
    span = max(own, without)
    cost = {"busy_s": own, "iteration_s": span, "without_s": without, "cost_s": span - without}
    what = "the iteration" if subject == "worker" else "an exchange"
    name = _name(subject, rank)
    if own > HOLDS_UP * without:
        return cost, f"without {name} {what} would take {seconds(without)} instead of {seconds(span)}"
    return cost, f"no current impact: {what} takes {seconds(without)} without {name} as well"


def _closed(subject: Subject, rank: int, kind: str, sentence: str) -> Finding:
    return Finding(rank=rank, kind=kind, open=False, sentence=sentence, subject=subject)


def _name(subject: Subject, rank: int) -> str:
    return f"{subject[0]}{rank}"
