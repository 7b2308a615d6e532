"""Which servers are worth using (PSLD section 4.2, Alg. 1), by the bounds of what is predicted for an even share.

Ruling 12. To the letter, ``lower >= threshold`` leaves one of several identical servers, and as measurements get
better the set collapses anyway (servers within 5 % of each other, 0.5 % noise: 2 of 8 are kept). So a server is out
only if its lower bound is strictly above the threshold *and* its mean is beyond a practical tolerance of the best
one's. The order is that of upper bounds: behind the first that is out may be one that is less sure, and each is
judged by itself, against the threshold that the first one left.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.policies.placement.communication import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How superior servers are distinguished."""

    z: float
    """Standard errors to either side."""
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
