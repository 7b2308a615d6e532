"""Shares: requests to a batching policy, its decisions, and what it learns while the job runs.

A policy that counts energy or cost is shown what each worker draws: as measured, else by its machine's labels, the
job's spec, or the stated default. A report has the energy of a whole iteration, in which the worker also waited. The
power of a waiting worker is not measured separately: the stated one is taken, and the rest is the power of a busy one.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import UNSET

from controlplane.core import drawing
from controlplane.core.choices import Learner, Observation, Resolve, ShareDecision, ShareRequest, Trainable
from controlplane.core.commands import AdoptPredictor, ScorePredictors, SetShares, TrainPredictor
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.core.processes import Worker
from controlplane.core.state import Job
from controlplane.protocol.energy import Draw, draw_of
from controlplane.protocol.messages import IterationReport

DRAW_SMOOTHING: Final = 0.2
"""Weight of the latest iteration: counters of energy have steps of up to 100 ms."""


def share_request(context: Context, iteration: int) -> ShareRequest:
    """The input of a batching policy at ``iteration``."""
    job, spec = context.job, context.spec
    total = job.batch
    highest = spec.limits.maximum if spec.limits.maximum is not None else total
    allowed = drawing.within_own(context, dict.fromkeys(job.generation.roster, (spec.limits.minimum, highest)))
    limits = _within_memory(job, allowed)
    return ShareRequest(
        iteration=iteration,
        total=total,
        current=dict(job.generation.shares),
        limits=limits,
        multiple=multiple_of(context),
        draws=_draws(context),
    )


def _within_memory(job: Job, limits: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Narrower where a worker's memory ran short, if that is possible: a worker that must process more does so in
    pieces.
    """
    room = job.attachment.room
    if not room and all(worker.ceiling is None for worker in job.workers.values()):
        return limits
    narrower = {
        rank: (low, max(low, min(high, room.get(rank, high), job.workers[rank].ceiling or high)))
        for rank, (low, high) in limits.items()
    }
    return narrower if sum(high for _, high in narrower.values()) >= job.batch else limits


def take_shares(context: Context, decision: ShareDecision, iteration: int, *, announce: bool) -> None:
    """Apply ``decision`` from ``iteration`` on."""
    job = context.job
    if not context.mode.owns_loop:
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
    decision = in_multiples(context, decision, request)
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
    cure = "choose another batching policy or other parameters, or resume to restart it"
    return f"batching {name} failed: {type(error).__name__}: {error}; {cure}"


def on_predictor_outcome(context: Context, event: PredictorTrained | PredictorPromoted) -> None:
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


def in_multiples(context: Context, decision: ShareDecision, request: ShareRequest) -> ShareDecision:
    """The decision with shares that are whole micro-batches of attached ranks; as it is where total or limits allow
    none.
    """
    multiple = multiple_of(context)
    if multiple == 1 or request.total % multiple:
        return decision
    bounds = {
        rank: (-(-request.limits[rank][0] // multiple), request.limits[rank][1] // multiple) for rank in decision.shares
    }
    parts = _divide(
        request.total // multiple, {rank: share / multiple for rank, share in decision.shares.items()}, bounds
    )
    if parts is None:
        return decision
    shares = {rank: part * multiple for rank, part in parts.items()}
    if shares == decision.shares:
        return decision
    reason = f"{decision.reason}; in multiples of {multiple}"
    return msgspec.structs.replace(decision, shares=shares, reason=reason)


def multiple_of(context: Context) -> int:
    """Of how many samples shares are multiples."""
    ranks = [worker.rank for worker in context.job.live_workers] if not context.mode.owns_loop else []
    return max([context.spec.sample_multiple, *(rank.multiple for rank in ranks if rank is not None and rank.counts)])


def _divide(total: int, wanted: Mapping[int, float], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int] | None:
    """Whole numbers near ``wanted`` that sum to ``total`` within ``bounds``; None where there are none.

    Each is rounded down at first; what is left goes where it is missed most, ties to the lowest rank.
    """
    if any(low > high for low, high in bounds.values()):
        return None
    if not sum(low for low, _ in bounds.values()) <= total <= sum(high for _, high in bounds.values()):
        return None
    parts = {rank: min(max(int(want), bounds[rank][0]), bounds[rank][1]) for rank, want in sorted(wanted.items())}
    while (left := total - sum(parts.values())) != 0:
        step = 1 if left > 0 else -1
        free = [rank for rank, part in parts.items() if bounds[rank][0] <= part + step <= bounds[rank][1]]
        rank = max(free, key=lambda rank: (step * (wanted[rank] - parts[rank]), -rank))
        parts[rank] += step
    return parts


def note_draw(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker has reported an iteration past its warm-up."""
    if not context.chosen.is_metered or report.joules is UNSET or report.busy_s <= 0.0:
        return
    stated = draw_of(context.spec.energy, worker.index, worker.power)
    waited_s = max(0.0, report.iteration_s - report.busy_s)
    idle_watts = min(stated.idle_watts, report.joules / report.iteration_s)
    watts = (report.joules - idle_watts * waited_s) / report.busy_s
    worker.watts = watts if worker.watts is None else worker.watts + DRAW_SMOOTHING * (watts - worker.watts)


def _draws(context: Context) -> dict[int, Draw]:
    """Of everyone who counts, by rank; empty unless the batching policy asks for it."""
    if not context.chosen.is_metered:
        return {}
    found = {}
    for worker in context.job.counting:
        stated = draw_of(context.spec.energy, worker.index, worker.power)
        found[worker.index] = stated if worker.watts is None else stated.with_busy(worker.watts)
    return found
