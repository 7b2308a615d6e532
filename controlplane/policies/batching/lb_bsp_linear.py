"""Beyond the papers (ruling 5): a line t = a + b x for each worker, learned online, and the exact min-max of the lines.

LB-BSP Alg. 2 moves one step between two workers per iteration. If time is linear in the share, as on GPUs above
saturation (section 3.3.1, Fig. 4), two different shares of a worker determine its line, and all shares can be computed
at once.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching import objective, recursive, settling
from controlplane.policies.batching.apportion import Limits, apportion, is_possible, limits_of
from controlplane.policies.batching.min_max import Line, min_max
from controlplane.policies.batching.proportional import change, held, keep_unknown
from controlplane.policies.batching.recursive import Fit
from controlplane.policies.batching.settling import Habit
from controlplane.policies.catalogue.batching import LbBspLinearParameters
from controlplane.policies.wording import listing, seconds
from controlplane.protocol.base import Value

NOISES = 0.25
"""For more even shares, the slowest worker may take longer than the optimum by this many typical errors of a fit."""

FLOOR = 0.125
FLOOR_NOISES = 2.0
"""Each worker gets at least this fraction of an even share, unless the slowest would take longer by ``FLOOR_NOISES``
typical errors: the line of a worker with very few samples cannot be learned, and noise would keep it there.
"""

BIAS = 0.5
"""Speeds are steady if the mean of the latest errors is below this fraction of a typical error; noise reaches 0.2 of
it.
"""

STEADY = 0.5
"""Errors for ``settling`` with steady speeds: known lines come from many measurements and are accurate.
"""


class LbBspLinearState(Value, frozen=True, kw_only=True):
    """The state of each worker."""

    fits: dict[int, Fit] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspLinear:
    """Never frozen: for any shares, the next ones are the best under the current lines."""

    name: ClassVar[str] = "lb-bsp-linear"
    every_iteration: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = LbBspLinearState

    parameters: LbBspLinearParameters

    def start(self, request: ShareRequest, state: Any | None) -> tuple[LbBspLinearState, ShareDecision]:
        """Shares by the lines known from the previous generation."""
        fits = state.fits if isinstance(state, LbBspLinearState) else {}
        kept = LbBspLinearState(fits={rank: fit for rank, fit in fits.items() if rank in request.current})
        return kept, self._divide(request, kept)

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[LbBspLinearState, ShareDecision]:
        """Add a point to each line, then compute the best shares."""
        fits = dict(state.fits)
        for seen in observations:
            if seen.rank in request.current and recursive.is_sound(seen):
                fits[seen.rank] = recursive.observe(fits.get(seen.rank), seen, self.parameters.forgetting)
        learnt = LbBspLinearState(fits=fits)
        return learnt, self._divide(request, learnt)

    def _divide(self, request: ShareRequest, state: LbBspLinearState) -> ShareDecision:
        limits = limits_of(request)
        lines = {rank: state.fits[rank].line for rank in sorted(request.current) if rank in state.fits}
        within = keep_unknown(request, lines, limits)
        if not lines:
            shares = apportion(request.total, request.current, within)
            reason = f"no time has been measured yet: {request.total} samples stay divided over {len(shares)} workers"
            return ShareDecision(shares=shares, reason=reason)
        typical = _typical(lines)
        whole = {rank: lines.get(rank, typical) for rank in request.current}
        shares = min_max(request.total, whole, within)
        error = statistics.median(state.fits[rank].error for rank in lines)
        shares = raised(shares, whole, within, FLOOR, FLOOR_NOISES * (error - recursive.LEAST_ERROR))
        known = len(lines) == len(whole) and all(state.fits[rank].weight > recursive.KNOWN for rank in lines)
        if known:
            shares = evened(shares, whole, within, NOISES * error)
        decision = ShareDecision(
            shares=shares,
            reason=_reason(request, shares, lines) + held(shares, limits, request.total),
            speeds={rank: shares[rank] / line.at(shares[rank]) for rank, line in lines.items()},
            predicted_s=_slowest_s(shares, lines),
        )
        decision = self._pursue(request, decision, lines, within, error)
        if not known or not _are_steady(state.fits[rank] for rank in lines) or self.parameters.objective != "time":
            return decision
        before, after = (
            {rank: line.at(division[rank]) for rank, line in lines.items()}
            for division in (request.current, decision.shares)
        )
        gain = settling.gain_of(before, after)
        return settling.settle(request, decision, within, Habit(noise=STEADY * error), gain=gain)[1]

    def _pursue(
        self, request: ShareRequest, decision: ShareDecision, lines: Mapping[int, Line], limits: Limits, error: float
    ) -> ShareDecision:
        """The decision for another objective than time, if the gain is large enough."""
        own, least = self.parameters, int(FLOOR * request.total / len(request.current))
        # Lines of workers with very few samples cannot be learned.
        bounds = {rank: (max(low, min(decision.shares[rank], least)), high) for rank, (low, high) in limits.items()}
        adopted = objective.pursue(own.objective, own.slack, request, decision, lines, bounds)
        if adopted is None:
            return decision
        _, settled = settling.settle(
            request, adopted.decision, bounds, Habit(noise=error), gain=adopted.gain, objective=own.objective
        )
        return settled


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredLbBspLinear(LbBspLinear):
    """With energy or cost as objective."""

    counts_power: ClassVar[bool] = True


def evened(shares: Mapping[int, int], lines: Mapping[int, Line], limits: Limits, room: float) -> dict[int, int]:
    """Shares as even as possible if the slowest worker may take longer by the fraction ``room``.

    If a constant cost dominates the time, moving samples between ranks gains less than the noise of measurements;
    without this, noise would give almost all samples to one rank.
    """
    end = (1.0 + room) * max(lines[rank].at(share) for rank, share in shares.items())
    most = {rank: max(shares[rank], int((end - line.begin) / line.per_sample)) for rank, line in lines.items()}
    bounds = {rank: (low, min(high, most[rank])) for rank, (low, high) in limits.items()}
    return apportion(sum(shares.values()), dict.fromkeys(shares, 1), bounds)


def raised(
    shares: dict[int, int], lines: Mapping[int, Line], limits: Limits, floor: float, room: float
) -> dict[int, int]:
    """Shares of at least ``floor`` times an even one, as far as the slowest takes longer by at most the fraction
    ``room``.
    """
    total, least = sum(shares.values()), int(floor * sum(shares.values()) / len(shares))
    end = (1.0 + room) * max(lines[rank].at(share) for rank, share in shares.items())
    lows = {
        rank: max(shares[rank], low, min(high, least, int((end - lines[rank].begin) / lines[rank].per_sample)))
        if shares[rank] < least
        else low
        for rank, (low, high) in limits.items()
    }
    bounds = {rank: (lows[rank], high) for rank, (_, high) in limits.items()}
    return min_max(total, lines, bounds) if is_possible(total, bounds) else shares


def _are_steady(fits: Iterable[Fit]) -> bool:
    """Whether times vary around the lines without drift. If speeds drift, lines are learned from changes of shares
    only.
    """
    return statistics.median(abs(fit.bias) / fit.error for fit in fits) < BIAS


def _typical(lines: Mapping[int, Line]) -> Line:
    """The line assumed for a worker without one."""
    begins = sorted(line.begin for line in lines.values())
    slopes = sorted(line.per_sample for line in lines.values())
    return Line(begin=begins[len(begins) // 2], per_sample=slopes[len(slopes) // 2])


def _reason(request: ShareRequest, shares: Mapping[int, int], lines: Mapping[int, Line]) -> str:
    slowest = max(lines, key=lambda rank: (lines[rank].at(request.current[rank]), -rank))
    fastest = min(lines, key=lambda rank: (lines[rank].at(request.current[rank]), rank))
    parts = [
        _change_sentence(rank, request.current[rank], shares[rank], lines[rank])
        for rank in dict.fromkeys((slowest, fastest))
    ]
    sentence = f"{' and '.join(parts)}; of {request.total} samples"
    before, after = _slowest_s(request.current, lines), _slowest_s(shares, lines)
    if before is not None and after is not None:
        instead = f" instead of {seconds(before)}" if shares != request.current else ""
        sentence += f", the slowest should be busy {seconds(after)}{instead}"
    if unknown := [f"w{rank} {shares[rank]}" for rank in shares if rank not in lines]:
        sentence += f"; not measured yet: {listing(unknown)}"
    return sentence


def _change_sentence(rank: int, before: int, after: int, line: Line) -> str:
    per_sample = seconds(line.per_sample)
    return f"w{rank} needs {seconds(line.begin)} and {per_sample} per sample, {change(before, after)}"


def _slowest_s(shares: Mapping[int, int], lines: Mapping[int, Line]) -> float | None:
    if lines.keys() != shares.keys():
        return None
    return max(lines[rank].at(shares[rank]) for rank in shares)
