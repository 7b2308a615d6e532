"""LB-BSP in CPU clusters (journal version, section 3.2, Alg. 1): shares in proportion to predicted speed.

On CPUs the time of a batch is its size over the worker's speed, so proportional shares end together. Speed counts
compute and unoverlapped communication (section 4). The rounding of line 6 is ruling 1's, in ``apportion``. How the
next speed is predicted (line 3) is up to the predictor; others may run beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.batching import settling
from controlplane.policies.batching.apportion import limits_of
from controlplane.policies.batching.proportional import divide
from controlplane.policies.batching.settling import Taken, gain_of
from controlplane.policies.batching.slower_pairs import is_sound
from controlplane.policies.parameters import LbBspCpuParameters
from controlplane.policies.prediction.interface import Predictor, measure
from controlplane.policies.prediction.panel import Panel


@dataclass(frozen=True, slots=True, kw_only=True)
class LbBspCpu:
    """Divides the global batch for each iteration. Its only state is that of its predictors."""

    name: ClassVar[str] = "lb-bsp-cpu"
    every_iteration: ClassVar[bool] = True

    parameters: LbBspCpuParameters
    predictor: Predictor
    shadows: tuple[Predictor, ...] = ()
    panel: Panel = field(init=False, repr=False)
    """The predictor and its shadows."""

    def __post_init__(self) -> None:
        panel = Panel(predictors=(self.predictor, *self.shadows), score_every=self.parameters.score_every)
        object.__setattr__(self, "panel", panel)

    @property
    def state_type(self) -> type[msgspec.Struct]:
        """That of the panel."""
        return self.panel.state_type

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """Shares by the speeds known from the generation before, if the same predictors measured them.

        Raises:
            ImpossibleShares: where no shares respect the limits.
        """
        known = state if isinstance(state, self.state_type) else self.panel.start()
        kept = self.panel.keep(request.current.keys(), known)
        return kept, divide(request, self.panel.speeds(kept), kept.acting)

    def carry(self, before: Any, state: Any) -> Any | None:
        """What predictors that are still there have learnt."""
        return self.panel.carry(before.panel, state) if isinstance(before, LbBspCpu) else None

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[Any, ShareDecision]:
        """Alg. 1, lines 2 to 7; unless ``literal``, what it says is adopted where it is worth it."""
        return decide_by(self.panel, request, observations, state, literal=self.parameters.literal)

    def learn(self, state: Any, news: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """New weights, or another predictor to act upon."""
        return self.panel.learn(state, news)


def decide_by(
    panel: Panel, request: ShareRequest, observations: Sequence[Observation], state: Any, *, literal: bool = False
) -> tuple[Any, ShareDecision]:
    """Shares in proportion to what the panel expects, once it has seen ``observations``, if they are worth a change."""
    expected = panel.speeds(state)
    learnt, lessons = panel.request_lesson(panel.observe(measure(observations), state))
    learnt, scores, findings = panel.score(learnt)
    decision = divide(request, panel.speeds(learnt), learnt.acting)
    if not literal:
        habit = settling.learn(learnt.habit, _taken(observations, expected))
        habit, decision = settling.settle(
            request, decision, limits_of(request), habit, gain=_gain(request, decision.shares, decision.speeds)
        )
        learnt = msgspec.structs.replace(learnt, habit=habit)
    if lessons or scores or findings:
        decision = msgspec.structs.replace(decision, lessons=lessons, scores=scores, findings=findings)
    return learnt, decision


def _taken(observations: Sequence[Observation], expected: Mapping[int, float]) -> dict[int, Taken]:
    return {
        seen.rank: Taken(
            samples=seen.samples,
            busy_s=seen.busy_s,
            expected_s=seen.samples / expected[seen.rank] if expected.get(seen.rank, 0.0) > 0 else None,
            per_sample=seen.busy_s / seen.samples,
        )
        for seen in observations
        if is_sound(seen)
    }


def _gain(request: ShareRequest, shares: Mapping[int, int], speeds: Mapping[int, float]) -> float | None:
    before_s = {rank: request.current[rank] / speed for rank, speed in speeds.items()}
    return gain_of(before_s, {rank: shares[rank] / speed for rank, speed in speeds.items()})
