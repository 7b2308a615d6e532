"""Shares of workers, and which samples each worker processes.

**Shares.** The batching policy gets a request and returns a decision. A policy that minimises energy or cost also gets
the power of each worker: the measured power if there is one, else that of its machine's labels, the job's spec, or the
default. A report has the energy of a whole iteration, including waiting. Power while waiting is not measured
separately: the configured idle power is subtracted, and the rest is the power of a busy worker.

**Samples.** In lockstep the shares of an iteration lie side by side in its global batch. In asynchronous modes samples
are leased: ranges of the permutations, handed out in the order of release. A worker's leases are all samples that it
was granted and has not reported, so its orders are always complete. Samples that a worker does not use, because it died
or the policies changed, are left out of that pass over the data; no sample is given to two workers.

**Splits.** Pieces of splits are granted one iteration at a time: the next piece begins where the worker stopped. New
splits apply from the next pieces on; reports of older pieces count for the samples of those pieces. In asynchronous
modes other workers may draw from a split that has moved in between, so pieces count as processed when they are handed
out: those of a lost worker are left out of that pass, as with leases.

**Own data.** A worker draws from its own data if the data policy splits the data, or the job divides it
(``partition``). A larger share would repeat samples within an iteration, so the size of its own data is an upper limit,
and other workers take the rest. If all workers together have too few samples for the global batch, samples repeat; a
flag names the workers. A round of a federation is several passes by design and has no such limit.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from controlplane.core.choices import (
    DataDecision,
    Learner,
    Observation,
    Resolve,
    ShareDecision,
    ShareRequest,
    Trainable,
)
from controlplane.core.commands import (
    AdoptPredictor,
    MoveSplits,
    PartitionData,
    ScorePredictors,
    SetShares,
    TrainPredictor,
)
from controlplane.core.context import Context, EventRefused, flag_key, number_of
from controlplane.core.events import PredictorPromoted, PredictorTrained
from controlplane.core.records import Checkpoint
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, Pieces, Worker
from controlplane.protocol.energy import Draw, draw_of
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Piece, Range

PROVISIONAL: Final = "; provisional, by the first iteration, which includes one-time costs"
"""The end of the reason of provisional shares."""

LEAST_PROVISIONAL, MOST_PROVISIONAL = 0.25, 1.5
"""The lowest and highest provisional share, as fractions of the present one."""

DRAW_SMOOTHING: Final = 0.2
"""Weight of the latest iteration; smoothing is needed because energy counters have steps of up to 100 ms."""


def share_request(context: Context, iteration: int) -> ShareRequest:
    """The input of a batching policy at ``iteration``."""
    job, spec = context.job, context.spec
    total = job.batch
    highest = spec.limits.maximum if spec.limits.maximum is not None else total
    allowed = within_own(context, dict.fromkeys(job.generation.roster, (spec.limits.minimum, highest)))
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
    """Lower the upper limits of workers whose memory ran short, if the others can take the rest; otherwise a worker
    processes its share in smaller pieces.
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
    lay_out_batch(context, decision, iteration)
    job.generation.share_from = iteration
    flag_repeats(context)
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
    request = share_request(context, _decided_for(context))
    decided = _ask_policy(context, request, observations)
    if decided is None:
        return False
    context.chosen.batching_state, decision = decided
    record_decision(context, decision)
    return _adopt(context, decision, request.iteration)


def decide_provisionally(context: Context, observations: list[Observation]) -> bool:
    """Decide shares by the first iteration of attached ranks; True if they changed.

    Its times include one-time costs. If these are alike, such as those of compiling, they make ranks look more alike
    than they are; if not, limits keep each share near the present one. The policy learns nothing from them.
    """
    request = share_request(context, _decided_for(context))
    limits = {rank: _near(request.current[rank], *request.limits[rank]) for rank in request.limits}
    decided = _ask_policy(context, msgspec.structs.replace(request, limits=limits), observations)
    if decided is None:
        return False
    _, decision = decided
    reason = f"{decision.reason}{PROVISIONAL}"
    # Expectations by these times would be compared with what follows.
    decision = ShareDecision(shares=decision.shares, reason=reason)
    return _adopt(context, decision, request.iteration)


def _near(share: int, low: int, high: int) -> tuple[int, int]:
    """Limits of a provisional share, around the present one if that is within its limits."""
    if not low <= share <= high:
        return low, high
    return max(low, math.ceil(LEAST_PROVISIONAL * share)), min(high, int(MOST_PROVISIONAL * share))


def _decided_for(context: Context) -> int:
    """The iteration for which shares are decided now."""
    soon = context.chosen.batching.every_iteration or context.chosen.partitioned is not None
    return context.job.round.completed + (1 if soon else 2)


def _ask_policy(
    context: Context, request: ShareRequest, observations: list[Observation]
) -> tuple[Any, ShareDecision] | None:
    """The policy's next state and its decision; None if it fails, or has failed before."""
    job = context.job
    if job.generation.is_short:
        return None
    try:
        state, decision = context.chosen.batching.decide(request, observations, context.chosen.batching_state)
    except Exception as error:
        job.generation.is_short = True
        context.fault = error
        return None
    return state, in_multiples(context, decision, request)


def _adopt(context: Context, decision: ShareDecision, iteration: int) -> bool:
    generation = context.job.generation
    now = (generation.shares, generation.budget_s, generation.ceilings)
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
    """The sentence for a batching policy that raised an exception; its state stays unchanged."""
    name = context.job.synchronization.batching.name
    cure = "choose another batching policy or other parameters, or resume to restart it"
    return f"batching {name} failed: {type(error).__name__}: {error}; {cure}"


def on_predictor_outcome(context: Context, event: PredictorTrained | PredictorPromoted) -> None:
    """A predictor was trained or promoted: pass it to the batching policy; its next decision uses it."""
    job, policies = context.job, context.chosen
    if not isinstance(policies.batching, Learner) or policies.batching_state is None:
        name = context.spec.synchronization.batching.name
        raise EventRefused(
            f"job {job.number}: an event for predictor {event.predictor}, but {name} trains no predictor"
        )
    try:
        policies.batching_state, acting, sentence = policies.batching.learn(policies.batching_state, event)
    except ValueError as error:
        raise EventRefused(f"job {job.number}: {error}") from None
    context.emit(AdoptPredictor, sentence, acting=acting)


def fit(command: TrainPredictor, resolve: Resolve) -> PredictorTrained:
    """Fit the predictor that the command names; the caller appends the event to the job's log.

    Takes up to some seconds and imports torch. Doing it twice does no harm: the engine accepts one result per round.
    """
    predictor = resolve("prediction", command.predictor)
    if not isinstance(predictor, Trainable):
        raise TypeError(f"predictor {command.predictor.name} has nothing to fit")
    weights, error = predictor.fit(command.data, command.seed)
    return PredictorTrained(predictor=command.predictor.name, round=command.round, weights=weights, error=error)


def in_multiples(context: Context, decision: ShareDecision, request: ShareRequest) -> ShareDecision:
    """The decision with shares in whole micro-batches of attached ranks; unchanged if the total or the limits do not
    allow that.
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
    """The number of samples that shares are multiples of."""
    ranks = [worker.rank for worker in context.job.live_workers] if not context.mode.owns_loop else []
    return max([context.spec.sample_multiple, *(rank.multiple for rank in ranks if rank is not None and rank.counts)])


def _divide(total: int, wanted: Mapping[int, float], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int] | None:
    """Whole numbers near ``wanted`` that sum to ``total`` within ``bounds``; None if that is impossible.

    Each is first rounded down; the remainder goes one by one to the rank furthest below what it wants, ties to the
    lowest rank.
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
    """Update a worker's power from its report of an iteration after its warm-up."""
    if not context.chosen.is_metered or report.joules is UNSET or report.busy_s <= 0.0:
        return
    stated = draw_of(context.spec.energy, worker.index, worker.power)
    waited_s = max(0.0, report.iteration_s - report.busy_s)
    idle_watts = min(stated.idle_watts, report.joules / report.iteration_s)
    watts = (report.joules - idle_watts * waited_s) / report.busy_s
    worker.watts = watts if worker.watts is None else worker.watts + DRAW_SMOOTHING * (watts - worker.watts)


def _draws(context: Context) -> dict[int, Draw]:
    """Power of all counting workers, by rank; empty unless the batching policy needs it."""
    if not context.chosen.is_metered:
        return {}
    found = {}
    for worker in context.job.counting:
        stated = draw_of(context.spec.energy, worker.index, worker.power)
        found[worker.index] = stated if worker.watts is None else stated.with_busy(worker.watts)
    return found


REPEATS: Final = "repeats"

Limits = dict[int, tuple[int, int]]


def begin_data(context: Context, ranks: Sequence[int]) -> bool:
    """Divide the data among the workers of a new generation, or reassign that of workers that left; False if the job
    failed because that is impossible.
    """
    data, policies, job = context.chosen.partitioned, context.chosen, context.job
    if data is None:
        return True
    if policies.data_state is not None:
        policies.data_state, decision = data.adopt(ranks, policies.data_state)
        _emit_moves(context, decision)
        return True
    try:
        policies.data_state, reason = data.partition(job.samples.count, ranks)
    except ValueError as error:
        context.end_job(JobState.FAILED, f"no splits for generation {job.generation.number}: {error}")
        return False
    context.emit(PartitionData, reason, samples=job.samples.count, ranks=list(ranks))
    return True


def withdraw_pieces(context: Context, first: int) -> None:
    """The data policy changes with iteration ``first``: drop grants and pieces for it and later iterations."""
    job = context.job
    for worker in (job.workers[rank] for rank in job.generation.roster):
        if context.chosen.data_state is None:
            worker.pieces = Pieces()
        worker.watermark = min(worker.watermark, max(first - 1, worker.last_completed))


def lay_out_batch(context: Context, decision: ShareDecision, iteration: int) -> None:
    """Place the shares from ``iteration`` on side by side; with a time budget, the most that each worker may take.

    Samples that no worker reaches are left out of that pass over the data.
    """
    job = context.job
    most = decision.ceilings or decision.shares
    width = sum(most.values()) if decision.ceilings else 0
    if width != job.samples.budget_width:
        job.samples.origin_position += max(0, iteration - job.samples.origin_iteration) * job.width
        job.samples.origin_iteration = max(job.samples.origin_iteration, iteration)
    job.samples.budget_width = width
    job.generation.offsets = context.chosen.data.offsets(most)
    job.generation.budget_s, job.generation.ceilings = decision.budget_s, decision.ceilings


def hand_out_pieces(context: Context, ranks: Iterable[int]) -> None:
    """Hand out pieces to workers that were granted an iteration and have no samples for it."""
    data, job = context.chosen.partitioned, context.job
    if data is None:
        return
    due = [worker for worker in (job.workers[rank] for rank in ranks) if worker.watermark > worker.pieces.iteration]
    if not due:
        return
    own, free = own_bounds(context), not context.mode.has_global_batch
    most = {worker.index: min(_wanted(job, worker), own.get(worker.index, _wanted(job, worker))) for worker in due}
    pieces = data.pieces(most, context.chosen.data_state)
    for worker in due:
        worker.pieces = Pieces(iteration=worker.watermark, ranges=pieces[worker.index], counted=free)
        if free:
            context.chosen.data_state = data.advance(worker.pieces.ranges, context.chosen.data_state)


def note_processed(context: Context, worker: Worker, report: IterationReport) -> None:
    """Record which samples a worker has processed."""
    policies = context.chosen
    if policies.mode.has_global_batch:
        processed = context.job.round.processed
        processed[report.iteration] = processed.get(report.iteration, 0) + report.samples
    if policies.partitioned is None or report.iteration != worker.pieces.iteration or worker.pieces.counted:
        return
    if worker.pieces.ranges and report.position != worker.pieces.ranges[0].start:
        return
    worker.pieces.drawn = report.samples
    if not policies.mode.has_global_batch:
        _advance(context, [worker])


def note_departure(context: Context, worker: Worker) -> None:
    """Record what a worker processed before it left: its update stays in the open iteration."""
    _advance(context, [worker])


def close_data(context: Context, observations: Sequence[Observation]) -> None:
    """Iterations are complete: continue after the processed samples, and reassign splits. An iteration without
    processed samples is an error (ruling 17), since it would be repeated forever.
    """
    job = context.job
    for iteration in sorted(number for number in job.round.processed if number <= job.round.completed):
        if not job.round.processed.pop(iteration) and job.state not in JOB_OVER and context.mode.owns_loop:
            who = ", ".join(f"w{rank}" for rank in job.generation.roster)
            found = f"iteration {iteration}: the updates of {who} contain 0 samples in total, expected at least 1"
            context.end_job(JobState.FAILED, found)
    if context.chosen.partitioned is not None and job.state not in JOB_OVER:
        _advance(context, [job.workers[rank] for rank in job.generation.roster])
        rebalance(context, observations)
        checkpoint = context.spec.checkpoint
        if checkpoint is not None and (job.round.completed + 1) % checkpoint.every == 0:
            remember_data(context, job.round.completed + 1)


def remember_data(context: Context, iteration: int) -> None:
    """Store the positions of the splits before ``iteration``, for its checkpoint."""
    job = context.job
    if context.chosen.partitioned is not None:
        job.checkpoints.splits = {
            **job.checkpoints.splits,
            iteration: msgspec.msgpack.encode(context.chosen.data_state),
        }


def restore_data(context: Context, target: Checkpoint) -> None:
    """Restore the positions of the splits before ``target.iteration``; at iteration 0 the data are divided anew."""
    policies = context.chosen
    if policies.partitioned is None:
        return
    if target.splits:
        policies.data_state = msgspec.msgpack.decode(target.splits, type=policies.partitioned.state_type)
    elif not target.iteration:
        policies.data_state = None


def rebalance(context: Context, observations: Sequence[Observation]) -> None:
    """Exchange splits if their counts of processed samples require it."""
    data, policies = context.chosen.partitioned, context.chosen
    if data is None:
        return
    speeds = {seen.rank: seen.samples / seen.busy_s for seen in observations if seen.busy_s > 0}
    policies.data_state, decision = data.rebalance(speeds, policies.data_state)
    _emit_moves(context, decision)


def _advance(context: Context, workers: Iterable[Worker]) -> None:
    data, policies = context.chosen.partitioned, context.chosen
    for worker in workers:
        if data is not None and worker.pieces.drawn:
            policies.data_state = data.advance(_first(worker.pieces.ranges, worker.pieces.drawn), policies.data_state)
        worker.pieces.drawn = 0


def _first(pieces: Sequence[Piece], count: int) -> list[Piece]:
    """The first ``count`` samples of the pieces."""
    done = []
    for piece in pieces:
        taken = min(count, piece.stop - piece.start)
        if taken > 0:
            done.append(msgspec.structs.replace(piece, stop=piece.start + taken))
        count -= taken
    return done


def _wanted(job: Job, worker: Worker) -> int:
    if worker.leases:
        return worker.leases[-1].share
    return job.generation.ceilings.get(worker.index, job.generation.shares[worker.index])


def _emit_moves(context: Context, decision: DataDecision) -> None:
    if decision.moves:
        context.emit(MoveSplits, decision.reason, iteration=context.job.round.completed + 1, moves=decision.moves)


def samples_left(job: Job) -> int | None:
    """Samples that may still be handed out before the job reaches ``stop.iterations``; None if it has no such limit.

    The limit is ``stop.iterations`` times the global batch in any mode; fast workers take more iterations.
    """
    assert job.spec is not None
    limit = job.spec.stop.iterations
    if limit is None:
        return None
    return max(0, limit * job.spec.global_batch - (job.samples.cursor - job.samples.dropped))


def limit_near_end(job: Job, worker: Worker, watermark: int) -> int:
    """The watermark, at most ``watermark``, to grant the worker so that all end together.

    Near the end of a job no worker gets more than it can use in half of the remaining time (guided self-scheduling);
    otherwise fast workers would wait for the slowest to use up a long lease.
    """
    left = samples_left(job)
    if left is None:
        return watermark
    if job.pace.speed > 0 and worker.pace_s > 0:
        iterations = left / job.pace.speed / worker.pace_s
    else:
        iterations = left / (len(job.generation.roster) * max(1, job.generation.shares[worker.index]))
    return min(watermark, worker.last_completed + max(1, int(iterations / 2)))


def grant_samples(job: Job, worker: Worker, watermark: int) -> bool:
    """Grant ``worker`` iterations and samples up to ``watermark``, or as many as are left; False if none are left."""
    share, left = max(1, job.generation.shares[worker.index]), samples_left(job)
    count = watermark - worker.watermark
    if left is not None and left < count * share:
        count, share = (left // share, share) if left >= share else (1, left)
    if share == 0:
        return False
    first = worker.watermark + 1
    _add_lease(worker.leases, Range(first=first, last=first + count - 1, position=job.samples.cursor, share=share))
    job.samples.cursor += count * share
    raise_watermark(worker, first + count - 1)
    return True


def raise_watermark(worker: Worker, watermark: int) -> None:
    """Grant iterations up to ``watermark``, without samples."""
    worker.watermark = watermark
    worker.granted = max(worker.granted, watermark)


def drop_used_leases(worker: Worker) -> None:
    """Forget the leases of iterations that are done."""
    while worker.leases and worker.leases[0].last <= worker.done:
        del worker.leases[0]


def drop_leases_after(job: Job, worker: Worker, iteration: int) -> None:
    """Take back what was leased for iterations after ``iteration``."""
    kept = []
    for lease in worker.leases:
        unused = lease.last - max(lease.first - 1, iteration, worker.done)
        job.samples.dropped += max(0, unused) * lease.share
        if lease.first <= iteration:
            last = min(lease.last, iteration)
            kept.append(Range(first=lease.first, last=last, position=lease.position, share=lease.share))
    worker.leases = kept


def _add_lease(leases: list[Range], new: Range) -> None:
    """Append ``new``, merged with the last lease if there is no gap."""
    if leases:
        last = leases[-1]
        end = last.position + (last.last - last.first + 1) * last.share
        if last.last + 1 == new.first and end == new.position and last.share == new.share:
            leases[-1] = Range(first=last.first, last=new.last, position=last.position, share=last.share)
            return
    leases.append(new)


def own_samples(context: Context) -> dict[int, int]:
    """How many samples each counting worker has of its own; empty if any worker may draw any sample."""
    job, policies = context.job, context.chosen
    if context.spec.federated is not None:
        return {}
    if policies.partitioned is not None:
        return {} if policies.data_state is None else policies.partitioned.held(policies.data_state)
    own = {rank: job.workers[rank].own_samples for rank in job.generation.roster}
    return own if all(own.values()) else {}


def own_bounds(context: Context) -> dict[int, int]:
    """The most samples that each worker may take of its own data; empty if there is no such limit or all limits are too
    low.
    """
    own, highest = own_samples(context), context.spec.limits.maximum
    most = sum(count if highest is None else min(count, highest) for count in own.values())
    return own if most >= context.job.batch else {}


def within_own(context: Context, limits: Limits) -> Limits:
    """The limits, narrowed to the sizes of the workers' own data where possible."""
    own = own_bounds(context)
    if not own:
        return limits
    return {
        rank: (min(low, own.get(rank, low)), min(high, own.get(rank, high))) for rank, (low, high) in limits.items()
    }


def flag_repeats(context: Context) -> None:
    """Raise or close the flags of workers whose share exceeds their own data."""
    job, own = context.job, own_samples(context)
    for rank, share in job.generation.shares.items():
        if rank in own and share > own[rank]:
            sentence = (
                f"w{rank} takes {share} samples per iteration of its own {own[rank]}: some repeat within an iteration, "
                f"since all workers together have too few for {job.batch}; use a smaller batch_size or more data"
            )
            context.open_flag(rank, REPEATS, "lasting", sentence, {"samples": own[rank], "share": share})
        elif flag_key(REPEATS, "worker", rank) in job.flags.open:
            context.close_flag(rank, REPEATS, f"w{rank} has {number_of(own.get(rank, 0), 'sample')} of its own")


def most_workers_for_data(context: Context) -> int | None:
    """The most workers that the data can be divided among; None if the data are not divided."""
    job = context.job
    if not job.samples.count or (context.chosen.partitioned is None and "data" not in job.requests.choices):
        return None
    return job.samples.count
