"""Exponential moving average of a worker's speed (LB-BSP section 3.2.2, Table 3: alpha 0.2)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controlplane.policies.catalogue.prediction import EmaParameters
from controlplane.policies.prediction.interface import Measured
from controlplane.protocol.base import Value


class EmaState(Value, frozen=True, kw_only=True):
    """The smoothed speed of each rank, in samples per second."""

    speeds: dict[int, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ema:
    """Robust to transient perturbations, slow to follow a lasting change. Starts at the first observation."""

    name: ClassVar[str] = "ema"
    state_type: ClassVar[type[msgspec.Struct]] = EmaState

    parameters: EmaParameters

    def start(self) -> EmaState:
        """A state without workers."""
        return EmaState()

    def observe(self, measured: Mapping[int, Measured], state: EmaState) -> EmaState:
        """Move each average by alpha towards the measurement."""
        alpha = self.parameters.alpha
        speeds = dict(state.speeds)
        for rank, seen in measured.items():
            average = speeds.get(rank, seen.speed)
            speeds[rank] = alpha * seen.speed + (1 - alpha) * average
        return EmaState(speeds=speeds)

    def predict(self, state: EmaState) -> dict[int, float]:
        """The averages."""
        return dict(state.speeds)

    def carry(self, before: "Ema", state: EmaState) -> EmaState:
        """The averages; only their smoothing weight changes."""
        return state

    def keep(self, ranks: Collection[int], state: EmaState) -> EmaState:
        """The averages of ``ranks``."""
        return EmaState(speeds={rank: speed for rank, speed in state.speeds.items() if rank in ranks})
