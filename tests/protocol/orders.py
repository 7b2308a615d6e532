"""Orders as tests of the worker's side make them: a global batch of 16, all granted that is asked for."""

from typing import Any

from controlplane.protocol.orders import Orders


def orders(**changes: Any) -> Orders:
    """One value of orders; by default the first, which grant nothing yet."""
    plain: dict[str, Any] = {
        "incarnation": 0,
        "generation": 1,
        "sequence": 0,
        "share": 4,
        "offset": 0,
        "global_batch": 16,
        "origin_iteration": 0,
        "origin_position": 0,
        "share_from": 0,
        "share_until": 10**6,
        "watermark": -1,
        "placement_version": 1,
    }
    return Orders(**plain | changes)
