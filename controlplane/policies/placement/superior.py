"""Which servers are worth using (PSLD section 4.2, Alg. 1), by confidence bounds of the prediction for an even share.

Ruling 12: in the paper, ``lower >= threshold`` keeps only one of several identical servers, and the set shrinks as
measurements get more accurate (servers within 5 % of each other, 0.5 % noise: 2 of 8 are kept). Here a server is
excluded only if its lower bound is strictly above the threshold *and* its mean exceeds the best one's by more than a
tolerance. Servers are checked in the order of upper bounds; after the first excluded server there may be one with wider
bounds, so each of the rest is checked against the threshold at that point.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.policies.placement.communication import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Parameters that distinguish superior servers."""

    z: float
    """Number of standard errors on either side."""
    tolerance: float = 1.0
    literal: bool = False


def superior_servers(lines: Mapping[int, Line], size: float, bounds: Bounds) -> list[int]:
    """Alg. 1, lines 2 to 10, for a server's even share of ``size`` bytes; sorted."""
    upper = {server: line.upper(size, bounds.z) for server, line in lines.items()}
    best = min((line.mean(size) for line in lines.values()), default=0.0)
    threshold = float("inf")
    chosen: list[int] = []
    is_run = True
    for server in sorted(lines, key=lambda server: (upper[server], server)):
        lower = lines[server].lower(size, bounds.z)
        is_near = not bounds.literal and lines[server].mean(size) <= bounds.tolerance * best
        is_out = lower >= threshold if bounds.literal else lower > threshold
        if is_out and not is_near:
            if bounds.literal:
                break
            is_run = False
            continue
        if is_run:
            threshold = upper[server]
        chosen.append(server)
    return sorted(chosen)
