"""Every worker may draw any sample (LB-BSP): an iteration's global batch is divided into one range per worker."""

import itertools
from collections.abc import Mapping
from typing import ClassVar


class Shared:
    """Ranges in order of rank, without gap or overlap: the global batch is the same for any shares."""

    name: ClassVar[str] = "shared"

    def offsets(self, shares: Mapping[int, int]) -> dict[int, int]:
        """The prefix sums of the shares."""
        ranks = sorted(shares)
        sums = itertools.accumulate((shares[rank] for rank in ranks), initial=0)
        return dict(zip(ranks, sums, strict=False))
