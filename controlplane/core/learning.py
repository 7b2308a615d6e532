"""What a batching policy says and is told besides shares: findings, fits, and which predictor is acted upon."""

from controlplane.core import flags
from controlplane.core.choices import Learner, ShareDecision
from controlplane.core.commands import AdoptPredictor, ScorePredictors, TrainPredictor
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.core.handling import EventRefused, Handling


def record(handling: Handling, decision: ShareDecision) -> None:
    """Give the commands for all that a decision brought besides its shares."""
    flags.record(handling, decision.findings)
    for lesson in decision.lessons:
        handling.give(
            TrainPredictor,
            lesson.reason,
            predictor=lesson.predictor,
            round=lesson.round,
            seed=handling.spec.seed,
            data=lesson.data,
        )
    if decision.scores:
        by_loss = sorted(decision.scores, key=lambda name: (decision.scores[name].slowdown, name))
        told = ", ".join(f"{name} {decision.scores[name].slowdown:.3f}" for name in by_loss)
        handling.give(
            ScorePredictors,
            f"iteration time over the least possible one: {told}; {decision.acting} is acted upon",
            iteration=handling.job.round.completed,
            acting=decision.acting,
            scores=decision.scores,
        )


def told_of(handling: Handling, error: Exception) -> str:
    """What is said of a batching policy that raised; the state that it was handed stays as it was."""
    name = handling.job.synchronization.batching.name
    cure = "choose another batching policy or other parameters, or resume to let it begin anew"
    return f"batching {name} failed: {type(error).__name__}: {error}; {cure}"


def on_news(handling: Handling, event: PredictorTrained | PredictorPromoted) -> None:
    """A predictor was trained or promoted: tell the batching policy; its next decision is made with it."""
    job, policies = handling.job, handling.chosen
    if not isinstance(policies.batching, Learner) or policies.batching_state is None:
        name = handling.spec.synchronization.batching.name
        raise EventRefused(f"job {job.number}: news of predictor {event.predictor}, but {name} does not wait for any")
    try:
        policies.batching_state, acting, sentence = policies.batching.learn(policies.batching_state, event)
    except ValueError as error:
        raise EventRefused(f"job {job.number}: {error}") from None
    handling.give(AdoptPredictor, sentence, acting=acting)
