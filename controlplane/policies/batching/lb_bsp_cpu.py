"""LB-BSP in CPU clusters (journal version, section 3.2, Alg. 1): shares in proportion to predicted speed.

On CPUs the time of a batch is its size over the worker's speed, so proportional shares end together. Speed counts
compute and unoverlapped communication (section 4). The rounding of line 6 is ruling 1's, in ``apportion``. How the
next speed is predicted (line 3) is the predictor's affair.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import Limits, apportion, is_possible
from controlplane.policies.batching.limits import limits_of
from controlplane.policies.prediction.interface import Predictor, measure
from controlplane.policies.wording import listing, number, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspCpu:
    """Divides the global batch anew for each iteration. All that it remembers is what its predictor remembers.

    A worker without a predicted speed (in warm-up, or new in the roster) keeps its current share, and the others
    divide the rest; where the limits do not let it, it counts as a worker of median speed.
    """

    name: ClassVar[str] = "lb-bsp-cpu"
    every_iteration: ClassVar[bool] = True

    predictor: Predictor

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of the predictor."""
        return self.predictor.state_type

    def start(self, request: ShareRequest, state: Any | None) -> tuple[msgspec.Struct, ShareDecision]:
        """Shares by the speeds known from the generation before, if the same predictor measured them.

        Raises:
            ImpossibleShares: where no shares respect the limits.
        """
        known = state if isinstance(state, self.state_type) else self.predictor.start()
        kept = self.predictor.keep(request.current.keys(), known)
        return kept, self._divide(request, kept)

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[msgspec.Struct, ShareDecision]:
        """Alg. 1, lines 2 to 7."""
        learnt = self.predictor.observe(measure(observations), state)
        return learnt, self._divide(request, learnt)

    def _divide(self, request: ShareRequest, state: Any) -> ShareDecision:
        speeds = _usable(self.predictor.predict(state), request)
        limits = limits_of(request)
        shares = apportion(request.total, _weights(request, speeds), _keep_unknown(request, speeds, limits))
        return ShareDecision(
            shares=shares,
            reason=self._reason(request, shares, speeds, limits),
            speeds=speeds,
            predicted_s=_slowest_s(shares, speeds),
        )

    def _reason(
        self, request: ShareRequest, shares: Mapping[int, int], speeds: Mapping[int, float], limits: Limits
    ) -> str:
        if not speeds:
            return f"no speed is measured yet: {request.total} samples stay as they are over {len(shares)} workers"
        ends = dict.fromkeys((min(speeds, key=lambda rank: (speeds[rank], rank)), max(speeds, key=lambda r: speeds[r])))
        expected = " and ".join(f"{number(speeds[rank])} samples/s of w{rank}" for rank in ends)
        moved = " and ".join(f"w{rank} {_change(request.current[rank], shares[rank])}" for rank in ends)
        sentence = f"{self.predictor.name} expects {expected}: {moved} of {request.total} samples"
        after = _slowest_s(shares, speeds)
        before = _slowest_s(request.current, speeds)
        if after is not None and before is not None:
            instead = f" instead of {seconds(before)}" if shares != request.current else ""
            sentence += f"; the slowest should be busy {seconds(after)}{instead}"
        if unknown := [f"w{rank} {shares[rank]}" for rank in shares if rank not in speeds]:
            sentence += f"; not measured yet: {listing(unknown)}"
        if held := [f"w{rank} {shares[rank]}" for rank in shares if shares[rank] == limits[rank][1] < request.total]:
            sentence += f"; held by the upper limit: {listing(held)}"
        return sentence


def _usable(predicted: Mapping[int, float], request: ShareRequest) -> dict[int, float]:
    """Predictions of the roster's workers that are speeds at all: a forecast may also fall to zero or below."""
    return {
        rank: predicted[rank]
        for rank in sorted(request.current)
        if rank in predicted and math.isfinite(predicted[rank]) and predicted[rank] > 0
    }


def _weights(request: ShareRequest, speeds: Mapping[int, float]) -> dict[int, float]:
    typical = statistics.median(speeds.values()) if speeds else 1.0
    return {rank: speeds.get(rank, typical) for rank in request.current}


def _keep_unknown(request: ShareRequest, speeds: Mapping[int, float], limits: Limits) -> Limits:
    """Limits that hold every worker without a predicted speed at its current share, where that is possible."""
    kept = dict(limits)
    for rank, (low, high) in limits.items():
        if rank not in speeds:
            share = min(max(request.current[rank], low), high)
            kept[rank] = (share, share)
    return kept if is_possible(request.total, kept) else limits


def _slowest_s(shares: Mapping[int, int], speeds: Mapping[int, float]) -> float | None:
    """Busy time of the slowest worker; None unless every worker's speed is predicted."""
    if speeds.keys() != shares.keys():
        return None
    return max(shares[rank] / speeds[rank] for rank in shares)


def _change(before: int, after: int) -> str:
    return f"keeps {after}" if before == after else f"takes {after} (was {before})"
