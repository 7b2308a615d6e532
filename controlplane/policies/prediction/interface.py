"""The interface of a predictor. A new one adds a file, its parameters and a line in the registry.

A predictor sees all workers at once, so that one that learns can stack them into a single batched operation.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import msgspec

from controlplane.core.choices import Observation
from controlplane.protocol.base import Value

SLOWEST, FASTEST = 1e-6, 1e12
"""Speeds in samples per second outside this range are errors of a clock: no machine takes eleven days for a sample."""


class Measured(Value, frozen=True, kw_only=True):
    """One worker's last iteration, as Eq. 4 of LB-BSP needs it.

    ``cpu`` and ``memory`` were measured when the report was sent, so they are those at the start of the coming
    iteration.
    """

    speed: float
    """Samples per second, above 0: the share over the busy time."""
    cpu: float = 0.0
    memory: float = 0.0


class Predictor(Protocol):
    """Predicts each worker's speed in the coming iteration."""

    name: ClassVar[str]
    state_type: ClassVar[type[msgspec.Struct]]

    def start(self) -> Any:
        """The state before any observation."""

    def observe(self, measured: Mapping[int, Measured], state: Any) -> Any:
        """The state after one more iteration; ranks that were not measured in it do not change."""

    def predict(self, state: Any) -> dict[int, float]:
        """Samples per second of every rank with enough measurements."""

    def carry(self, before: Any, state: Any) -> Any:
        """The state with the parts that still fit of ``state``, the state of ``before``: the same predictor with other
        parameters.
        """

    def keep(self, ranks: Collection[int], state: Any) -> Any:
        """The state for a new roster: only what is known about ``ranks``."""


def measure(observations: Sequence[Observation]) -> dict[int, Measured]:
    """Speeds (Alg. 1 line 2), by rank; without workers that processed no samples or took no measurable time."""
    speeds = {seen.rank: Measured(speed=_speed(seen), cpu=seen.cpu, memory=seen.memory) for seen in observations}
    return {rank: measured for rank, measured in speeds.items() if measured.speed > 0}


def _speed(seen: Observation) -> float:
    if seen.samples <= 0 or not (math.isfinite(seen.busy_s) and seen.busy_s > 0):
        return 0.0
    speed = seen.samples / seen.busy_s
    return speed if SLOWEST <= speed <= FASTEST else 0.0
