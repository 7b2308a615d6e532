"""Rotation, with splits that move between workers when some are processed more often than others.

Two methods:

- ``swap`` (A-BSP section 3.3.2, Alg. 2): the splits with the lowest and the highest process count are swapped
  when the counts differ by more than ``gap``. In the paper's version, two splits swap back immediately, since their
  counts still differ; by ruling 19 they are swapped only while the less processed one is on the slower machine.
- ``migrate`` (LB-BSP section 7, the partition manager): when a worker has processed its data more than
  ``gap`` times more often than another one, it takes splits from that one, so that both then process their data equally
  fast, and all counts restart. With steady speeds that happens once.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controlplane.core.choices import DataDecision
from controlplane.policies.catalogue.data import ExchangeParameters
from controlplane.policies.data.rotation import Rotation
from controlplane.policies.data.splits import SplitsState, give, reset_counts
from controlplane.policies.wording import listing, number

SWAP_GAP = 5
MIGRATE_GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Rotation):
    """Handles at most one pair of workers per iteration."""

    name: ClassVar[str] = "exchange"

    parameters: ExchangeParameters

    @property
    def gap(self) -> int:
        """Differences up to this one are ignored."""
        usual = SWAP_GAP if self.parameters.method == "swap" else MIGRATE_GAP
        return usual if self.parameters.gap is None else self.parameters.gap

    def rebalance(self, speeds: Mapping[int, float], state: SplitsState) -> tuple[SplitsState, DataDecision]:
        """One swap, one migration, or none."""
        return self._swap(speeds, state) if self.parameters.method == "swap" else self._migrate(state)

    def _swap(self, speeds: Mapping[int, float], state: SplitsState) -> tuple[SplitsState, DataDecision]:
        """Alg. 2, lines 5 to 11."""
        counts = {index: split.count for index, split in enumerate(state.splits)}
        least = min(counts, key=lambda index: (counts[index], index))
        most = max(counts, key=lambda index: (counts[index], -index))
        behind, ahead = state.splits[least].owner, state.splits[most].owner
        facts = (
            f"split {least} of w{behind} was processed {counts[least]} times, split {most} of w{ahead} {counts[most]}"
        )
        if counts[most] - counts[least] <= self.gap:
            return state, _none(f"{facts}: at most {self.gap} apart")
        if behind == ahead:
            return state, _none(f"{facts}: both are on one machine")
        if not self.parameters.literal and not _is_slower(behind, ahead, speeds):
            return state, _none(
                f"{facts}: it is not known to be on the slower machine{_speeds_sentence(behind, ahead, speeds)}"
            )
        swapped, moves = give(state, {least: ahead, most: behind})
        return swapped, DataDecision(moves=moves, reason=f"{facts}: more than {self.gap} apart, they swap places")

    def _migrate(self, state: SplitsState) -> tuple[SplitsState, DataDecision]:
        sizes: dict[int, int] = defaultdict(int)
        done: dict[int, int] = defaultdict(int)
        for split in state.splits:
            sizes[split.owner] += split.size
            done[split.owner] += split.processed - split.counted_from
        passes = {rank: done[rank] / sizes[rank] for rank in sorted(sizes)}
        behind = min(passes, key=lambda rank: (passes[rank], rank))
        ahead = max(passes, key=lambda rank: (passes[rank], -rank))
        facts = (
            f"w{ahead} went {number(passes[ahead])} times through its data, w{behind} {number(passes[behind])} times"
        )
        if passes[ahead] - passes[behind] <= self.gap:
            return state, _none(f"{facts}: at most {self.gap} apart")
        # The number of samples that makes done / size equal for both.
        target = (done[ahead] * sizes[behind] - done[behind] * sizes[ahead]) / (done[ahead] + done[behind])
        chosen = _about(target, behind, state)
        moved, moves = give(state, dict.fromkeys(chosen, ahead))
        if not moves:
            return reset_counts(moved), _none(f"{facts}: w{behind} has a single split left; counts restart")
        samples = sum(move.stop - move.start for move in moves)
        names = listing(f"split {index}" for index in chosen)
        reason = f"{facts}: w{ahead} takes {samples:,} samples from w{behind} ({names}), and counts restart"
        return reset_counts(moved), DataDecision(moves=moves, reason=reason)


def _about(target: float, rank: int, state: SplitsState) -> list[int]:
    """The least processed splits of a worker with about ``target`` samples; it keeps at least one and gives at least
    one.
    """
    own = sorted(state.owned(rank), key=lambda index: (state.splits[index].processed, index))
    chosen: list[int] = []
    for index in own[:-1]:
        if chosen and target < state.splits[index].size / 2:
            break
        chosen.append(index)
        target -= state.splits[index].size
    return sorted(chosen)


def _is_slower(one: int, other: int, speeds: Mapping[int, float]) -> bool:
    return one in speeds and other in speeds and speeds[one] < speeds[other]


def _speeds_sentence(one: int, other: int, speeds: Mapping[int, float]) -> str:
    known = [f"w{rank} {number(speeds[rank])} samples/s" for rank in (one, other) if rank in speeds]
    return f" ({', '.join(known)})" if known else ""


def _none(reason: str) -> DataDecision:
    return DataDecision(moves=[], reason=reason)
