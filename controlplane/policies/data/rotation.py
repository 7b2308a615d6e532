"""Every worker has its own splits and continues in them where it stopped (A-BSP section 3.3.1, task level)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.core.choices import DataDecision
from controlplane.policies.catalogue.data import RotationParameters
from controlplane.policies.data import splits
from controlplane.policies.data.splits import SplitsState
from controlplane.protocol.orders import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Within a worker's data the counts of processed samples differ by at most one; no data move between workers."""

    name: ClassVar[str] = "rotation"
    state_type: ClassVar[type[msgspec.Struct]] = SplitsState

    parameters: RotationParameters

    def offsets(self, shares: Mapping[int, int]) -> dict[int, int]:
        """The prefix sums of the shares: the offset of each worker's update in the iteration's global batch."""
        ranks = sorted(shares)
        sums = itertools.accumulate((shares[rank] for rank in ranks), initial=0)
        return dict(zip(ranks, sums, strict=False))

    def partition(self, samples: int, ranks: Sequence[int]) -> tuple[SplitsState, str]:
        """The same number of splits for each worker."""
        state = splits.cut(samples, ranks, self.parameters.splits)
        each = len(state.splits) // len(ranks)
        return state, f"{samples:,} samples in {len(state.splits)} splits, {each} for each worker"

    def pieces(self, shares: Mapping[int, int], state: SplitsState) -> dict[int, list[Piece]]:
        """The next samples from where each worker stopped."""
        return {rank: splits.draw(shares[rank], rank, state) for rank in sorted(shares)}

    def advance(self, done: Iterable[Piece], state: SplitsState) -> SplitsState:
        """Samples that were not processed come first next time."""
        return splits.advance(done, state)

    def held(self, state: SplitsState) -> dict[int, int]:
        """The samples in each worker's splits."""
        return splits.sizes(state)

    def rebalance(self, speeds: Mapping[int, float], state: SplitsState) -> tuple[SplitsState, DataDecision]:
        """Splits never move."""
        return state, DataDecision(moves=[], reason="splits stay with their workers under rotation")

    def adopt(self, ranks: Sequence[int], state: SplitsState) -> tuple[SplitsState, DataDecision]:
        """Splits of workers that left must be reassigned."""
        return splits.take_over(ranks, state)
