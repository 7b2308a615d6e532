"""LB-BSP in CPU clusters (journal version, section 3.2, Alg. 1): shares in proportion to predicted speed.

On CPUs the time of a batch is its size divided by the worker's speed, so proportional shares end together. Speed counts
compute and unoverlapped communication (section 4). Line 6 is rounded by ruling 1, in ``apportion``. The predictor
forecasts the next speed (line 3); other predictors may run in parallel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from controlplane.core.choices import Observation, ShareDecision, ShareRequest
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.policies.batching import objective, settling
from controlplane.policies.batching.apportion import Limits, limits_of
from controlplane.policies.batching.min_max import Line
from controlplane.policies.batching.proportional import divide
from controlplane.policies.batching.settling import Taken, gain_of
from controlplane.policies.batching.slower_pairs import is_sound
from controlplane.policies.catalogue.batching import LbBspCpuParameters
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
        """The panel's state."""
        return self.panel.state_type

    def start(self, request: ShareRequest, state: Any | None) -> tuple[Any, ShareDecision]:
        """Shares by the speeds of the previous generation, if the same predictors measured them.

        Raises:
            ImpossibleShares: if no shares respect the limits.
        """
        known = state if isinstance(state, self.state_type) else self.panel.start()
        kept = self.panel.keep(request.current.keys(), known)
        decision = divide(request, self.panel.speeds(kept), kept.acting)
        adopted = _pursue(self.parameters, request, decision, limits_of(request))
        return kept, decision if adopted is None else adopted.decision

    def carry(self, before: Any, state: Any) -> Any | None:
        """The state of predictors that remain."""
        return self.panel.carry(before.panel, state) if isinstance(before, LbBspCpu) else None

    def decide(
        self, request: ShareRequest, observations: Sequence[Observation], state: Any
    ) -> tuple[Any, ShareDecision]:
        """Alg. 1, lines 2 to 7; unless ``literal``, new shares are adopted only if the gain is large enough."""
        own = self.parameters
        return decide_by(self.panel, request, observations, state, literal=own.literal, pursued=own)

    def learn(self, state: Any, outcome: PredictorTrained | PredictorPromoted) -> tuple[Any, str, str]:
        """New weights, or another active predictor."""
        return self.panel.learn(state, outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredLbBspCpu(LbBspCpu):
    """With energy or cost as objective."""

    counts_power: ClassVar[bool] = True


def decide_by(
    panel: Panel,
    request: ShareRequest,
    observations: Sequence[Observation],
    state: Any,
    *,
    literal: bool = False,
    pursued: objective.Pursued | None = None,
) -> tuple[Any, ShareDecision]:
    """Update the panel with ``observations``, and return shares by its forecast if the gain is large enough.

    Shares are proportional to speeds, unless ``pursued`` has another objective than time.
    """
    expected = panel.speeds(state)
    learnt, lessons = panel.request_lesson(panel.observe(measure(observations), state))
    learnt, scores, findings = panel.score(learnt)
    decision, limits = divide(request, panel.speeds(learnt), learnt.acting), limits_of(request)
    gain = _gain(request, decision.shares, decision.speeds)
    if pursued is not None and (adopted := _pursue(pursued, request, decision, limits)) is not None:
        decision, gain = adopted.decision, adopted.gain
    if not literal:
        habit = settling.learn(learnt.habit, _taken(observations, expected))
        name = pursued.objective if pursued is not None else "time"
        habit, decision = settling.settle(request, decision, limits, habit, gain=gain, objective=name)
        learnt = msgspec.structs.replace(learnt, habit=habit)
    if lessons or scores or findings:
        decision = msgspec.structs.replace(decision, lessons=lessons, scores=scores, findings=findings)
    return learnt, decision


def _pursue(
    pursued: objective.Pursued, request: ShareRequest, decision: ShareDecision, limits: Limits
) -> objective.Adopted | None:
    lines = {rank: Line(begin=0.0, per_sample=1 / speed) for rank, speed in decision.speeds.items()}
    return objective.pursue(pursued.objective, pursued.slack, request, decision, lines, limits)


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
