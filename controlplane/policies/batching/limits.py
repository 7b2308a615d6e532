"""The limits of a share request as every batching policy reads them."""

from controlplane.core.choices import ShareRequest


def limits_of(request: ShareRequest) -> dict[int, tuple[int, int]]:
    """Lowest and highest share of each rank, at least 1 sample each (ruling 1)."""
    return {rank: (max(1, request.limits[rank][0]), request.limits[rank][1]) for rank in sorted(request.current)}
