"""Which samples the workers draw: parts of a common batch, leases, or pieces of their own splits.

In lockstep the shares of an iteration lie side by side in its global batch. Without lockstep samples are leased: ranges
of the permutations, handed out in the order of release. A worker's leases are all samples that it was granted and has
not reported, so its orders are always complete. Samples that a worker does not use (it died, or the policies changed)
are left out of that pass over the data; no sample is given to two workers.

Pieces of splits are granted one iteration at a time, since the next piece begins where the worker stopped. A change of
splits counts from the next pieces on; what is processed under older ones counts for the samples that it was. Without
lockstep others may draw from a split that changes hands in between, so pieces count as processed when they are handed
out: what a dead worker had is left out of that pass, as with leases.

A worker draws from its own data where the data policy splits them, or where the job divides them (``partition``). A
share above that would repeat samples within an iteration, so it is an upper limit, and other workers take the rest.
Where all workers together have too few for the global batch, samples repeat; a flag names the workers. A round of a
federation is several passes by design and has no such limit.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from controlplane.core.choices import DataDecision, Observation, ShareDecision
from controlplane.core.commands import MoveSplits, PartitionData
from controlplane.core.context import Context, flag_key, number_of
from controlplane.core.processes import Pieces, Worker
from controlplane.core.records import Checkpoint
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Piece, Range

REPEATS: Final = "repeats"

Limits = dict[int, tuple[int, int]]


def begin_data(context: Context, ranks: Sequence[int]) -> bool:
    """A generation begins: divide the data among its workers, or reassign that of workers that left; whether it
    succeeded.
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


def take_back(context: Context, first: int) -> None:
    """Other data from ``first`` on: drop grants for the earlier samples and pieces of other splits."""
    job = context.job
    for worker in (job.workers[rank] for rank in job.generation.roster):
        if context.chosen.data_state is None:
            worker.pieces = Pieces()
        worker.watermark = min(worker.watermark, max(first - 1, worker.last_completed))


def take_batch(context: Context, decision: ShareDecision, iteration: int) -> None:
    """Lay the shares of ``iteration`` and later ones side by side; with a time budget, the most that each may take.

    Samples that no worker gets to are left out of that pass over the data.
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


def hand_out(context: Context, ranks: Iterable[int]) -> None:
    """Pieces for workers that are granted an iteration and have no samples for it."""
    data, job = context.chosen.partitioned, context.job
    if data is None:
        return
    due = [worker for worker in (job.workers[rank] for rank in ranks) if worker.watermark > worker.pieces.iteration]
    if not due:
        return
    own, free = own_bounds(context), not context.mode.has_global_batch
    most = {worker.index: min(_most(job, worker), own.get(worker.index, _most(job, worker))) for worker in due}
    pieces = data.pieces(most, context.chosen.data_state)
    for worker in due:
        worker.pieces = Pieces(iteration=worker.watermark, ranges=pieces[worker.index], counted=free)
        if free:
            context.chosen.data_state = data.advance(worker.pieces.ranges, context.chosen.data_state)


def note_processed(context: Context, worker: Worker, report: IterationReport) -> None:
    """Note what was really processed."""
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
    """What a worker reported before it left was processed: its update stays in the open iteration."""
    _advance(context, [worker])


def close_data(context: Context, observations: Sequence[Observation]) -> None:
    """Iterations are complete: continue after the processed samples, and reassign splits. An iteration without
    processed samples is an error (ruling 17): it would be repeated for ever.
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
    """Store the positions of the splits before ``iteration``: a checkpoint of it is written."""
    job = context.job
    if context.chosen.partitioned is not None:
        job.checkpoints.splits = {
            **job.checkpoints.splits,
            iteration: msgspec.msgpack.encode(context.chosen.data_state),
        }


def restore_data(context: Context, target: Checkpoint) -> None:
    """Restore the positions of the splits before ``target.iteration``; at iteration 0 they are divided as at first."""
    policies = context.chosen
    if policies.partitioned is None:
        return
    if target.splits:
        policies.data_state = msgspec.msgpack.decode(target.splits, type=policies.partitioned.state_type)
    elif not target.iteration:
        policies.data_state = None


def rebalance(context: Context, observations: Sequence[Observation]) -> None:
    """Exchange splits where their process counts require it."""
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
    """The first ``count`` samples of them."""
    done = []
    for piece in pieces:
        taken = min(count, piece.stop - piece.start)
        if taken > 0:
            done.append(msgspec.structs.replace(piece, stop=piece.start + taken))
        count -= taken
    return done


def _most(job: Job, worker: Worker) -> int:
    if worker.leases:
        return worker.leases[-1].share
    return job.generation.ceilings.get(worker.index, job.generation.shares[worker.index])


def _emit_moves(context: Context, decision: DataDecision) -> None:
    if decision.moves:
        context.emit(MoveSplits, decision.reason, iteration=context.job.round.completed + 1, moves=decision.moves)


def left_over(job: Job) -> int | None:
    """Samples that may still be handed out before the job reaches ``stop.iterations``; None: no such limit.

    That is ``stop.iterations`` times the global batch, in any mode: a fast worker takes more iterations of its own.
    """
    assert job.spec is not None
    limit = job.spec.stop.iterations
    if limit is None:
        return None
    return max(0, limit * job.spec.global_batch - (job.samples.cursor - job.samples.dropped))


def reach(job: Job, worker: Worker, watermark: int) -> int:
    """How far up to ``watermark`` the worker should be granted, so that all end together.

    Towards the end of a job no worker gets more than it can use in half of the time that is left (guided
    self-scheduling); otherwise fast workers would wait for the slowest to use up a long lease.
    """
    left = left_over(job)
    if left is None:
        return watermark
    if job.pace.speed > 0 and worker.pace_s > 0:
        iterations = left / job.pace.speed / worker.pace_s
    else:
        iterations = left / (len(job.generation.roster) * max(1, job.generation.shares[worker.index]))
    return min(watermark, worker.last_completed + max(1, int(iterations / 2)))


def grant(job: Job, worker: Worker, watermark: int) -> bool:
    """Grant ``worker`` iterations and samples up to ``watermark``, or as many as are left; False if none are."""
    share, left = max(1, job.generation.shares[worker.index]), left_over(job)
    count = watermark - worker.watermark
    if left is not None and left < count * share:
        count, share = (left // share, share) if left >= share else (1, left)
    if share == 0:
        return False
    first = worker.watermark + 1
    _add_lease(worker.leases, Range(first=first, last=first + count - 1, position=job.samples.cursor, share=share))
    job.samples.cursor += count * share
    raise_to(worker, first + count - 1)
    return True


def raise_to(worker: Worker, watermark: int) -> None:
    """Grant iterations up to ``watermark``, without samples."""
    worker.watermark = watermark
    worker.granted = max(worker.granted, watermark)


def use_up(worker: Worker) -> None:
    """Forget the leases of iterations that are done."""
    while worker.leases and worker.leases[0].last <= worker.done:
        del worker.leases[0]


def drop_after(job: Job, worker: Worker, iteration: int) -> None:
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
    """Samples of each counting worker's own; empty where any worker may draw any sample."""
    job, policies = context.job, context.chosen
    if context.spec.federated is not None:
        return {}
    if policies.partitioned is not None:
        return {} if policies.data_state is None else policies.partitioned.held(policies.data_state)
    own = {rank: job.workers[rank].own_samples for rank in job.generation.roster}
    return own if all(own.values()) else {}


def own_bounds(context: Context) -> dict[int, int]:
    """The most that each worker may take; empty where there is no such limit, or it leaves too few samples."""
    own, highest = own_samples(context), context.spec.limits.maximum
    most = sum(count if highest is None else min(count, highest) for count in own.values())
    return own if most >= context.job.batch else {}


def within_own(context: Context, limits: Limits) -> Limits:
    """The limits, where those of the data are as narrow or narrower."""
    own = own_bounds(context)
    if not own:
        return limits
    return {
        rank: (min(low, own.get(rank, low)), min(high, own.get(rank, high))) for rank, (low, high) in limits.items()
    }


def look_at_own(context: Context) -> None:
    """Raise or close the flags of those whose share is above their own data."""
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


def data_room(context: Context) -> int | None:
    """Among how many workers the data can be divided at most, where they are or soon will be; None: any number."""
    job = context.job
    if not job.samples.count or (context.chosen.partitioned is None and "data" not in job.requests.choices):
        return None
    return job.samples.count
