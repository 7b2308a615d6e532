"""LB-BSP for cross-silo federated learning (section 3.5): each client's batch size B follows its speed.

The learning rate and the number tau of local steps do not change: a client that took more or larger steps would pull
the model towards its own data. Clients have stable speeds, so an EMA predicts them, and no worker waits for the
decision. The weight of each client's update is up to the aggregation rule (equal weights, ruling 10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.policies.batching.lb_bsp_cpu import decide_by
from controlplane.policies.batching.proportional import divide
from controlplane.policies.catalogue.batching import LbBspFederatedParameters
from controlplane.policies.catalogue.prediction import EmaParameters
from controlplane.policies.prediction.ema import Ema
from controlplane.policies.prediction.panel import Panel

SCORE_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspFederated:
    """A round is one iteration: a client's speed is the samples of its tau steps divided by its busy time."""

    name: ClassVar[str] = "lb-bsp-federated"
    every_iteration: ClassVar[bool] = False
    for_federations: ClassVar[bool] = True

    parameters: LbBspFederatedParameters

    @property
    def panel(self) -> Panel:
        """A panel with an EMA only."""
        ema = Ema(parameters=EmaParameters(alpha=self.parameters.alpha))
        return Panel(predictors=(ema,), score_every=SCORE_EVERY)

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """The panel's state type."""
        return self.panel.state_type

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """Shares by the speeds known from the previous generation."""
        known = state if isinstance(state, self.state_type) else self.panel.start()
        kept = self.panel.keep(request.current.keys(), known)
        return kept, divide(request, self.panel.speeds(kept), kept.acting)

    def carry(self, before: Any, state: Any) -> Any | None:
        """The averages; only their smoothing weight changes."""
        return self.panel.carry(before.panel, state) if isinstance(before, LbBspFederated) else None

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[Any, ShareDecision]:
        """Batch sizes proportional to smoothed speeds; their sum stays n times the job's batch size."""
        return decide_by(self.panel, request, observations, state, pursued=self.parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredLbBspFederated(LbBspFederated):
    """With energy or cost as objective."""

    counts_power: ClassVar[bool] = True
