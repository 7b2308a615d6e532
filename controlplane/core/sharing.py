"""Shares: requests to a batching policy, its decisions, and what it learns while the job runs."""

from controlplane.core import drawing, multiples
from controlplane.core.choices import Learner, Observation, Resolve, ShareDecision, ShareRequest, Trainable
from controlplane.core.commands import AdoptPredictor, ScorePredictors, SetShares, TrainPredictor
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.core.state import Job


def share_request(context: Context, iteration: int) -> ShareRequest:
    """What a batching policy has to divide at ``iteration``."""
    job, spec = context.job, context.spec
    total = job.batch
    highest = spec.limits.maximum if spec.limits.maximum is not None else total
    allowed = drawing.within_own(context, dict.fromkeys(job.generation.roster, (spec.limits.minimum, highest)))
    limits = _within_memory(job, allowed)
    return ShareRequest(iteration=iteration, total=total, current=dict(job.generation.shares), limits=limits)


def _within_memory(job: Job, limits: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Narrower where a worker's memory ran short, if that is possible: a worker that must process more does so in
    pieces.
    """
    narrower = {
        rank: (low, max(low, min(high, job.workers[rank].ceiling or high))) for rank, (low, high) in limits.items()
    }
    return narrower if sum(high for _, high in narrower.values()) >= job.batch else limits


def take_shares(context: Context, decision: ShareDecision, iteration: int, *, announce: bool) -> None:
    """Apply ``decision`` from ``iteration`` on."""
    job = context.job
    if context.spec.attached:
        job.attachment.next_version(job.incarnation)
    job.generation.shares = decision.shares
    drawing.take_batch(context, decision, iteration)
    job.generation.share_from = iteration
    drawing.look_at_own(context)
    if announce:
        context.emit(
            SetShares,
            decision.reason,
            generation=job.generation.number,
            iteration=iteration,
            policy=job.synchronization.batching.name,
            shares=decision.shares,
            speeds=decision.speeds,
            predicted_s=decision.predicted_s,
            budget_s=decision.budget_s,
            ceilings=decision.ceilings,
        )


def decide_shares(context: Context, observations: list[Observation]) -> bool:
    """Decide the shares of the iteration after the completed one; True if they changed."""
    job, batching = context.job, context.chosen.batching
    if job.generation.is_short:
        return False
    soon = batching.every_iteration or context.chosen.partitioned is not None
    iteration = job.round.completed + (1 if soon else 2)
    request = share_request(context, iteration)
    try:
        state, decision = batching.decide(request, observations, context.chosen.batching_state)
    except Exception as error:
        job.generation.is_short = True
        context.fault = error
        return False
    context.chosen.batching_state = state
    decision = multiples.rounded(decision, request, multiples.of_ranks(context))
    record_decision(context, decision)
    now = (job.generation.shares, job.generation.budget_s, job.generation.ceilings)
    changed = (decision.shares, decision.budget_s, decision.ceilings) != now
    if changed:
        take_shares(context, decision, iteration, announce=True)
    return changed


def record_decision(context: Context, decision: ShareDecision) -> None:
    """Emit the commands for everything in a decision besides its shares."""
    context.record_findings(decision.findings)
    for lesson in decision.lessons:
        context.emit(
            TrainPredictor,
            lesson.reason,
            predictor=lesson.predictor,
            round=lesson.round,
            seed=context.spec.seed,
            data=lesson.data,
        )
    if decision.scores:
        by_loss = sorted(decision.scores, key=lambda name: (decision.scores[name].slowdown, name))
        sentence = ", ".join(f"{name} {decision.scores[name].slowdown:.3f}" for name in by_loss)
        context.emit(
            ScorePredictors,
            f"iteration time over the least possible one: {sentence}; {decision.acting} is active",
            iteration=context.job.round.completed,
            acting=decision.acting,
            scores=decision.scores,
        )


def failure_sentence(context: Context, error: Exception) -> str:
    """The sentence for a batching policy that raised; its state stays unchanged."""
    name = context.job.synchronization.batching.name
    cure = "choose another batching policy or other parameters, or resume to let it restart"
    return f"batching {name} failed: {type(error).__name__}: {error}; {cure}"


def on_predictor_news(context: Context, event: PredictorTrained | PredictorPromoted) -> None:
    """A predictor was trained or promoted: pass it to the batching policy; its next decision uses it."""
    job, policies = context.job, context.chosen
    if not isinstance(policies.batching, Learner) or policies.batching_state is None:
        name = context.spec.synchronization.batching.name
        raise EventRefused(f"job {job.number}: news of predictor {event.predictor}, but {name} does not wait for any")
    try:
        policies.batching_state, acting, sentence = policies.batching.learn(policies.batching_state, event)
    except ValueError as error:
        raise EventRefused(f"job {job.number}: {error}") from None
    context.emit(AdoptPredictor, sentence, acting=acting)


def fit(command: TrainPredictor, resolve: Resolve) -> PredictorTrained:
    """Do what the command asks for; the event should be appended to the job's log.

    Takes up to seconds and loads torch. Doing it twice does no harm: the engine takes the answer to a round once.
    """
    predictor = resolve("prediction", command.predictor)
    if not isinstance(predictor, Trainable):
        raise TypeError(f"predictor {command.predictor.name} has nothing to fit")
    weights, error = predictor.fit(command.data, command.seed)
    return PredictorTrained(predictor=command.predictor.name, round=command.round, weights=weights, error=error)
