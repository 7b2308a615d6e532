"""Predicts the last iteration's speed (LB-BSP section 3.2.2): a baseline that follows every perturbation."""

from collections.abc import Collection, Mapping
from typing import ClassVar

import msgspec

from controlplane.policies.prediction.interface import Measured
from controlplane.protocol.base import Value


class MemorylessState(Value, frozen=True, kw_only=True):
    """The last measured speed of each rank, in samples per second."""

    speeds: dict[int, float] = {}


class Memoryless:
    """Predicts the last measured speed."""

    name: ClassVar[str] = "memoryless"
    state_type: ClassVar[type[msgspec.Struct]] = MemorylessState

    def start(self) -> MemorylessState:
        """A state without workers."""
        return MemorylessState()

    def observe(self, measured: Mapping[int, Measured], state: MemorylessState) -> MemorylessState:
        """Replace the last speeds."""
        return MemorylessState(speeds=state.speeds | {rank: seen.speed for rank, seen in measured.items()})

    def predict(self, state: MemorylessState) -> dict[int, float]:
        """The last speeds."""
        return dict(state.speeds)

    def carry(self, before: "Memoryless", state: MemorylessState) -> MemorylessState:
        """The state as it is: there are no parameters."""
        return state

    def keep(self, ranks: Collection[int], state: MemorylessState) -> MemorylessState:
        """The last speeds of ``ranks``."""
        return MemorylessState(speeds={rank: speed for rank, speed in state.speeds.items() if rank in ranks})
