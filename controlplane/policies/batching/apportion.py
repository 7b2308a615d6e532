"""Divides samples among workers in whole numbers, exactly: the last step of every batching policy.

LB-BSP Alg. 1 line 6 with ruling 1: proportional to the weights; what a limit cuts off is redistributed among the
others; then the largest-remainder method, ties to the lowest rank. All arithmetic is in integers (a float is an integer
times a power of two), so that the same weights give the same shares on every machine.
"""

import math
from collections.abc import Mapping

from controlplane.core.choices import ImpossibleShares, ShareRequest
from controlplane.policies.wording import amounts

Limits = Mapping[int, tuple[int, int]]
"""Lowest and highest share of each rank."""


def limits_of(request: ShareRequest) -> dict[int, tuple[int, int]]:
    """The limits of a request, at least 1 sample each (ruling 1)."""
    return {rank: (max(1, request.limits[rank][0]), request.limits[rank][1]) for rank in sorted(request.current)}


def apportion(total: int, weights: Mapping[int, float], limits: Limits) -> dict[int, int]:
    """Shares in proportion to ``weights`` that sum to ``total`` and respect ``limits``, by rank.

    Without limits each share is its exact proportional part rounded down or up. With limits it is ``clip(scale *
    weight, lowest, highest)``, rounded down or up, where ``scale`` is such that the shares sum to ``total``. Ranks with
    weight 0 take what the others cannot.

    Raises:
        ImpossibleShares: if no shares respect the limits; it names them.
        ValueError: if a weight is negative or not finite.
    """
    ensure_possible(total, limits)
    exact = _as_integers(weights)
    pinned = _pin(total, exact, limits)
    free = {rank: exact[rank] for rank in sorted(exact) if rank not in pinned}
    shares = pinned | _round(total - sum(pinned.values()), free)
    return {rank: shares[rank] for rank in sorted(shares)}


def divide_evenly(request: ShareRequest) -> dict[int, int]:
    """Shares by ``apportion`` for equal weights within the limits of a request.

    Raises:
        ImpossibleShares: if no shares respect the limits; it names them.
    """
    ranks = sorted(request.current)
    base, more = divmod(request.total, len(ranks) or 1)
    bounds = set(request.limits.values())
    if not ranks or base < 1 or any(low > base or high < base + (more > 0) for low, high in bounds):
        return apportion(request.total, dict.fromkeys(ranks, 1), limits_of(request))
    return dict.fromkeys(ranks[:more], base + 1) | dict.fromkeys(ranks[more:], base)


def is_possible(total: int, limits: Limits) -> bool:
    """Whether shares exist that sum to ``total`` within ``limits``."""
    least = most = 0
    for low, high in limits.values():
        if low > high:
            return False
        least += low
        most += high
    return least <= total <= most


def ensure_possible(total: int, limits: Limits) -> None:
    """Raise ``ImpossibleShares``, naming the conflicting limits, unless ``is_possible``."""
    if is_possible(total, limits):
        return
    lows = {rank: low for rank, (low, _) in limits.items()}
    highs = {rank: high for rank, (_, high) in limits.items()}
    for rank in sorted(limits):
        if lows[rank] > highs[rank]:
            raise ImpossibleShares(f"w{rank}: its lower limit {lows[rank]} is above its upper limit {highs[rank]}")
    subject = f"{total} samples cannot be divided over {len(limits)} workers"
    if (least := sum(lows.values())) > total:
        raise ImpossibleShares(f"{subject}: their lower limits sum to {least} ({amounts(lows)})")
    if (most := sum(highs.values())) < total:
        raise ImpossibleShares(f"{subject}: their upper limits sum to {most} ({amounts(highs)})")


def _as_integers(weights: Mapping[int, float]) -> dict[int, int]:
    """The weights times a common power of two that makes all of them integers."""
    for rank, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"w{rank}: found weight {weight}, expected a finite number of at least 0")
    whole = {rank: weight for rank, weight in weights.items() if isinstance(weight, int)}
    if len(whole) == len(weights):
        return whole
    ratios = {rank: weight.as_integer_ratio() for rank, weight in weights.items()}
    scale = max((denominator for _, denominator in ratios.values()), default=1)
    return {rank: numerator * (scale // denominator) for rank, (numerator, denominator) in ratios.items()}


def _pin(total: int, weights: Mapping[int, int], limits: Limits) -> dict[int, int]:
    """The ranks whose share is one of their limits, with that limit.

    Each round divides the rest in proportion and checks whether lower or upper limits change the sum more. Only the
    ranks at those limits are certain to stay there, since the correction moves the others away from the same limits.
    Ends after at most as many rounds as there are ranks, usually after two.
    """
    pinned: dict[int, int] = {}
    while True:
        free = {rank: weight for rank, weight in weights.items() if rank not in pinned}
        rest = total - sum(pinned.values())
        whole = sum(free.values())
        if whole == 0:
            free, whole = dict.fromkeys(free, 1), len(free)
        below: dict[int, int] = {}
        above: dict[int, int] = {}
        added = 0
        for rank, weight in free.items():
            low, high = limits[rank]
            if (short := low * whole - rest * weight) > 0:
                below[rank] = low
                added += short
            elif (over := rest * weight - high * whole) > 0:
                above[rank] = high
                added -= over
        if not below and not above:
            return pinned
        pinned |= (below if added >= 0 else {}) | (above if added <= 0 else {})


def _round(rest: int, weights: Mapping[int, int]) -> dict[int, int]:
    """``rest`` by largest remainder, ties to the lowest rank; equal parts if all weights are 0."""
    whole = sum(weights.values())
    if whole == 0:
        weights, whole = dict.fromkeys(weights, 1), len(weights)
    shares = {rank: rest * weight // whole for rank, weight in weights.items()}
    if left := rest - sum(shares.values()):
        by_remainder = sorted(shares, key=lambda rank: (-(rest * weights[rank] % whole), rank))
        for rank in by_remainder[:left]:
            shares[rank] += 1
    return shares
