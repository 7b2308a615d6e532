"""Beyond the papers (ruling 21): a common time budget; each worker processes as many samples as fit into it.

The budget is the time in which all workers together should process the global batch. A share is what a worker is
expected to reach; a faster worker continues up to its ceiling, a slower one stops with what it has. The deviation from
the global batch is corrected in the next iteration, so that the average is the global batch. A wrong prediction only
moves samples and makes no worker wait, so an EMA is good enough. For work that can be cut short.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.batching.apportion import limits_of
from controlplane.policies.batching.lb_bsp_cpu import decide_by
from controlplane.policies.batching.proportional import divide
from controlplane.policies.catalogue.batching import DeadlineParameters
from controlplane.policies.prediction.interface import Predictor
from controlplane.policies.prediction.panel import Panel
from controlplane.policies.wording import seconds
from controlplane.protocol.base import MAX_SECONDS

SCORE_EVERY = 50

LARGEST_DEFICIT = 0.5
"""The largest correction in one iteration, as a fraction of the global batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """Speeds are those of processing alone: the budget limits processing, and communication comes on top for every
    worker.
    """

    name: ClassVar[str] = "deadline"
    every_iteration: ClassVar[bool] = True
    ends_by_time: ClassVar[bool] = True

    parameters: DeadlineParameters
    predictor: Predictor

    @property
    def panel(self) -> Panel:
        """A panel with one predictor."""
        return Panel(predictors=(self.predictor,), score_every=SCORE_EVERY)

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """The panel's state, and the samples carried over."""
        return _state_type(self.panel.state_type)

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """Shares by the speeds known from the previous generation; no samples are carried over."""
        own: Any = state if isinstance(state, self.state_type) else None
        known = own.panel if own is not None else self.panel.start()
        kept = self.panel.keep(request.current.keys(), known)
        return self._with_budget(request, kept, divide(request, self.panel.speeds(kept), kept.acting), 0)

    def carry(self, before: Any, state: Any) -> Any | None:
        """The predictor's state, if it is still the same predictor."""
        if not isinstance(before, Deadline):
            return None
        return self.state_type(panel=self.panel.carry(before.panel, state.panel))

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[Any, ShareDecision]:
        """Update speeds and the samples carried over from what was processed."""
        processing = [msgspec.structs.replace(seen, communication_s=0.0) for seen in observations]
        learnt, decision = decide_by(self.panel, request, processing, state.panel)
        done = {seen.rank: max(0, seen.samples) for seen in observations if seen.rank in request.current}
        # Workers without a measurement are assumed to have processed their share.
        processed = sum(done.get(rank, share) for rank, share in request.current.items())
        most = int(LARGEST_DEFICIT * request.total)
        deficit = min(max(state.owed + request.total - processed, -most), most)
        return self._with_budget(request, learnt, decision, deficit)

    def learn(self, state: Any, outcome: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """New weights for the predictor."""
        panel, acting, sentence = self.panel.learn(state.panel, outcome)
        return self.state_type(panel=panel, owed=state.owed), acting, sentence

    def _with_budget(
        self, request: ShareRequest, panel: Any, decision: ShareDecision, deficit: int
    ) -> tuple[Any, ShareDecision]:
        state = self.state_type(panel=panel, owed=deficit)
        if decision.speeds.keys() != request.current.keys():
            return state, decision
        whole_s = (request.total + deficit) / sum(decision.speeds.values())
        # A worker checks the clock after each piece, so on average it stops half a piece late.
        budget_s = min(MAX_SECONDS, whole_s * (1 - 0.5 / self.parameters.pieces))
        limits = limits_of(request)
        ceilings = {
            rank: max(share, min(limits[rank][1], round(share * self.parameters.stretch)))
            for rank, share in decision.shares.items()
        }
        made_up = (
            f" to compensate for {deficit} samples"
            if deficit > 0
            else f" since {-deficit} are ahead"
            if deficit < 0
            else ""
        )
        reason = (
            f"all workers stop after {seconds(budget_s)}, in which all should process {request.total + deficit}"
            f" samples{made_up}; {decision.reason}"
        )
        return state, msgspec.structs.replace(
            decision, reason=reason, budget_s=budget_s, ceilings=ceilings, predicted_s=whole_s
        )


@cache
def _state_type(panel: type[msgspec.Struct]) -> type[msgspec.Struct]:
    return msgspec.defstruct("DeadlineState", [("panel", panel), ("owed", int, 0)], frozen=True, kw_only=True)
