"""Shares of attached ranks in whole micro-batches: what a policy divides, rounded to multiples."""

from collections.abc import Mapping

import msgspec

from controlplane.core.choices import ShareDecision, ShareRequest
from controlplane.core.context import Context


def of_ranks(context: Context) -> int:
    """Of how many samples shares are multiples."""
    ranks = [worker.rank for worker in context.job.live_workers]
    return max([context.spec.sample_multiple, *(rank.multiple for rank in ranks if rank is not None and rank.counts)])


def rounded(decision: ShareDecision, request: ShareRequest, multiple: int) -> ShareDecision:
    """The decision with shares that are multiples; as it is where the total or the limits allow none."""
    if multiple == 1 or request.total % multiple:
        return decision
    bounds = {
        rank: (-(-request.limits[rank][0] // multiple), request.limits[rank][1] // multiple) for rank in decision.shares
    }
    parts = divide(
        request.total // multiple, {rank: share / multiple for rank, share in decision.shares.items()}, bounds
    )
    if parts is None:
        return decision
    shares = {rank: part * multiple for rank, part in parts.items()}
    if shares == decision.shares:
        return decision
    reason = f"{decision.reason}; in multiples of {multiple}"
    return msgspec.structs.replace(decision, shares=shares, reason=reason)


def divide(total: int, wanted: Mapping[int, float], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int] | None:
    """Whole numbers near ``wanted`` that sum to ``total`` within ``bounds``; None where there are none.

    Each is rounded down at first; what is left goes where it is missed most, ties to the lowest rank.
    """
    if any(low > high for low, high in bounds.values()):
        return None
    if not sum(low for low, _ in bounds.values()) <= total <= sum(high for _, high in bounds.values()):
        return None
    parts = {rank: min(max(int(want), bounds[rank][0]), bounds[rank][1]) for rank, want in sorted(wanted.items())}
    while (left := total - sum(parts.values())) != 0:
        step = 1 if left > 0 else -1
        free = [rank for rank, part in parts.items() if bounds[rank][0] <= part + step <= bounds[rank][1]]
        rank = max(free, key=lambda rank: (step * (wanted[rank] - parts[rank]), -rank))
        parts[rank] += step
    return parts
