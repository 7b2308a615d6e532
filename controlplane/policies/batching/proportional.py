"""Shares in proportion to predicted speeds, with the sentence for the operator: LB-BSP Alg. 1 lines 4 to 6."""

import math
import statistics
from collections.abc import Container, Mapping

from controlplane.core.choices import ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import Limits, apportion, is_possible, limits_of
from controlplane.policies.wording import listing, number, seconds


def divide(request: ShareRequest, predicted: Mapping[int, float], predictor: str) -> ShareDecision:
    """Shares by predicted speeds.

    A worker without a predicted speed (in warm-up, or new in the roster) keeps its current share, and the others divide
    the rest; if the limits forbid that, it counts as a worker of median speed.

    Raises:
        ImpossibleShares: if no shares respect the limits.
    """
    speeds = usable(predicted, request)
    limits = limits_of(request)
    shares = apportion(request.total, _weights(request, speeds), keep_unknown(request, speeds.keys(), limits))
    slowest_s = _slowest_s(shares, speeds)
    return ShareDecision(
        shares=shares,
        reason=_reason(request, shares, speeds, limits, predictor, slowest_s),
        speeds=speeds,
        predicted_s=slowest_s,
        acting=predictor,
    )


def usable(predicted: Mapping[int, float], request: ShareRequest) -> dict[int, float]:
    """The valid predictions for workers of the roster: a forecast may also be zero or negative."""
    return {
        rank: predicted[rank]
        for rank in sorted(request.current)
        if rank in predicted and math.isfinite(predicted[rank]) and predicted[rank] > 0
    }


def keep_unknown(request: ShareRequest, known: Container[int], limits: Limits) -> Limits:
    """Limits that keep every worker that is not ``known`` at its current share, if possible."""
    unknown = [rank for rank in limits if rank not in known]
    if not unknown:
        return limits
    kept = dict(limits)
    for rank in unknown:
        low, high = limits[rank]
        share = min(max(request.current[rank], low), high)
        kept[rank] = (share, share)
    return kept if is_possible(request.total, kept) else limits


def held(shares: Mapping[int, int], limits: Limits, total: int) -> str:
    """Ends a sentence with the workers at the upper limit, if any."""
    names = [f"w{rank} {shares[rank]}" for rank in shares if shares[rank] == limits[rank][1] < total]
    return f"; held by the upper limit: {listing(names)}" if names else ""


def change(before: int, after: int) -> str:
    """``takes 23 (was 64)``."""
    return f"keeps {after}" if before == after else f"takes {after} (was {before})"


def _weights(request: ShareRequest, speeds: Mapping[int, float]) -> Mapping[int, float]:
    if speeds.keys() == request.current.keys():
        return speeds
    typical = statistics.median(speeds.values()) if speeds else 1.0
    return {rank: speeds.get(rank, typical) for rank in request.current}


def _reason(
    request: ShareRequest,
    shares: Mapping[int, int],
    speeds: Mapping[int, float],
    limits: Limits,
    predictor: str,
    after: float | None,
) -> str:
    if not speeds:
        return f"no speed has been measured yet: {request.total} samples stay as they are over {len(shares)} workers"
    # Speeds are in order of rank, so that the lowest of equal ranks is named.
    ends = dict.fromkeys((min(speeds, key=speeds.__getitem__), max(speeds, key=speeds.__getitem__)))
    expected = " and ".join(f"{number(speeds[rank])} samples/s of w{rank}" for rank in ends)
    moved = " and ".join(f"w{rank} {change(request.current[rank], shares[rank])}" for rank in ends)
    sentence = f"{predictor} expects {expected}: {moved} of {request.total} samples"
    before = _slowest_s(request.current, speeds)
    if after is not None and before is not None:
        instead = f" instead of {seconds(before)}" if shares != request.current else ""
        sentence += f"; the slowest should be busy {seconds(after)}{instead}"
    if unknown := [f"w{rank} {shares[rank]}" for rank in shares if rank not in speeds]:
        sentence += f"; not measured yet: {listing(unknown)}"
    return sentence + held(shares, limits, request.total)


def _slowest_s(shares: Mapping[int, int], speeds: Mapping[int, float]) -> float | None:
    """Busy time of the slowest worker; None unless every worker's speed is predicted."""
    if speeds.keys() != shares.keys():
        return None
    return max(shares[rank] / speeds[rank] for rank in shares)
