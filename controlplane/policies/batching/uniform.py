"""The same share for all: plain data parallelism, the baseline of every comparison."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching.apportion import divide_evenly
from controlplane.protocol.base import Value


class UniformState(Value, frozen=True, kw_only=True):
    """An empty state."""


class Uniform:
    """Divides the global batch evenly, regardless of observations."""

    name: ClassVar[str] = "uniform"
    state_type: ClassVar[type[msgspec.Struct]] = UniformState
    every_iteration: ClassVar[bool] = False
    ignores_speed: ClassVar[bool] = True

    def start(self, request: ShareRequest, state: Any | None) -> tuple[UniformState, ShareDecision]:
        """Even shares; raises ``ImpossibleShares`` if no shares respect the limits."""
        shares = divide_evenly(request)
        return UniformState(), ShareDecision(shares=shares, reason=_reason(shares))

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[UniformState, ShareDecision]:
        """The same shares as at the start."""
        return self.start(request, state)


def _reason(shares: dict[int, int]) -> str:
    least, most = min(shares.values()), max(shares.values())
    each = str(least) if least == most else f"{least} or {most}"
    return f"{sum(shares.values())} samples evenly over {len(shares)} workers: {each} each"
