"""Which workers were ever slower than which others: the whole history that line 9 of LB-BSP Alg. 2 needs, one bit per
pair.
"""

import math
from collections.abc import Mapping

from controlplane.core.choices import Observation


def is_sound(seen: Observation) -> bool:
    """Whether the observation has a valid time."""
    return seen.samples > 0 and math.isfinite(seen.busy_s) and seen.busy_s > 0


def noted(slower: Mapping[int, bytes], times: Mapping[int, float]) -> dict[int, bytes]:
    """Add one iteration: bit j of rank i is set if i ever took longer than j (positions in order of rank)."""
    ranks = sorted(times)
    size = (len(ranks) + 7) // 8
    place = {rank: position for position, rank in enumerate(ranks)}
    faster = behind = 0
    last = -math.inf
    found: dict[int, bytes] = {}
    for rank in sorted(ranks, key=lambda rank: times[rank]):
        if times[rank] > last:
            faster, last = behind, times[rank]
        before = int.from_bytes(slower.get(rank, b""), "little")
        found[rank] = (before | faster).to_bytes(size, "little")
        behind |= 1 << place[rank]
    return found


def was_slower(slower: Mapping[int, bytes], rank: int, than: int) -> bool:
    """Whether ``rank`` ever took longer than ``than``."""
    place = sorted(slower).index(than)
    return bool(int.from_bytes(slower[rank], "little") >> place & 1)
