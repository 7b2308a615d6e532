"""Beyond the papers (ruling 5): a line t = a + b x for each worker, learnt online, and the exact min-max of the lines.

LB-BSP Alg. 2 moves one step between two workers per iteration. Where time is a line of the share, as on GPUs above
saturation (section 3.3.1, Fig. 4), two different shares of a worker give its line, and all shares follow at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching import recursive
from controlplane.policies.batching.apportion import apportion, limits_of
from controlplane.policies.batching.min_max import Line, min_max
from controlplane.policies.batching.proportional import change, held, keep_unknown
from controlplane.policies.batching.recursive import Fit
from controlplane.policies.parameters import LbBspLinearParameters
from controlplane.policies.wording import listing, seconds
from controlplane.protocol.base import Value


class LbBspLinearState(Value, frozen=True, kw_only=True):
    """What is known about each worker."""

    fits: dict[int, Fit] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspLinear:
    """Never frozen: for any shares, the next ones are the best under the current lines."""

    name: ClassVar[str] = "lb-bsp-linear"
    every_iteration: ClassVar[bool] = False
    state_type: ClassVar[type[msgspec.Struct]] = LbBspLinearState

    parameters: LbBspLinearParameters

    def start(self, request: ShareRequest, state: Any | None) -> tuple[LbBspLinearState, ShareDecision]:
        """By the lines known from the generation before."""
        fits = state.fits if isinstance(state, LbBspLinearState) else {}
        kept = LbBspLinearState(fits={rank: fit for rank, fit in fits.items() if rank in request.current})
        return kept, self._divide(request, kept)

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[LbBspLinearState, ShareDecision]:
        """One more point for each line, then the best shares."""
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
            reason = f"no time is measured yet: {request.total} samples stay as they are over {len(shares)} workers"
            return ShareDecision(shares=shares, reason=reason)
        typical = _typical(lines)
        shares = min_max(request.total, {rank: lines.get(rank, typical) for rank in request.current}, within)
        return ShareDecision(
            shares=shares,
            reason=_reason(request, shares, lines) + held(shares, limits, request.total),
            speeds={rank: shares[rank] / line.at(shares[rank]) for rank, line in lines.items()},
            predicted_s=_slowest_s(shares, lines),
        )


def _typical(lines: Mapping[int, Line]) -> Line:
    """The line that a worker without any counts with."""
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
