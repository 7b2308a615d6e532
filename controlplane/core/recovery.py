"""Checkpoints, and how a job continues after a loss of parameters: rollback and refill.

**Checkpoints.** In lockstep the servers keep every n-th version by themselves. In asynchronous modes all workers stop
at a boundary, the servers save their blocks, and all continue. Once every block is on disk one server writes the
manifest; only then is the checkpoint valid. If the workers hold the parameters, the first of them saves every n-th
version and also writes the manifest. If the data are split among the workers, their positions are saved as well, for
this job only. The policies' states are not part of a checkpoint: a rollback keeps them, and another job learns anew.

**Rollback.** When parameters are lost with the processes that held them, the whole job goes back to the last
checkpoint. A new instance replaces every process, so that no unfinished work can count: partial sums end with the
servers, and updates of old instances are stale. Iterations after the checkpoint are repeated on the same samples.

**Refill.** When a server is lost and workers have copies of its blocks, a new server begins with these copies. Each
worker reports which version it has of every lost block, and stops pulling them. Once all have reported and the new
server is connected, the newest copy of each block is sent to it. In lockstep nothing is repeated: a worker that had
pushed a later update still has it and pushes it again. Asynchronously, updates that no worker had pulled yet are lost
for those blocks. Optimizer state of these blocks is lost in both cases; if it matters and there is a checkpoint, the
job is rolled back instead.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from controlplane.core import granting, ordering, placing, restarts, sharing
from controlplane.core.commands import KeepCheckpoint, RefillBlocks, RollBack, SkipCheckpoint
from controlplane.core.context import Context
from controlplane.core.records import Checkpoint, Refill, Revival
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JOB_OVER, JobState, Process, ProcessState, Server, Worker
from controlplane.protocol.checkpoints import SavedBlock, WholeCheckpoint
from controlplane.protocol.messages import BlocksFilled, CheckpointSaved, CopiesHeld, RestoreFailed
from controlplane.protocol.optimizers import is_stateless

_ALL_GONE: Final = "all workers with a copy of its blocks ended as well"


DIVERGED: Final = "try a smaller learning rate"
"""Ends the reason of a job that failed because a loss or its parameters are NaN or infinite."""


def on_saved(context: Context, keeper: Process, message: CheckpointSaved) -> None:
    """A piece of a checkpoint was written, or could not be written."""
    job = context.job
    if job.starts.is_rebuilding or (job.checkpoints.kept and message.iteration <= job.checkpoints.kept[-1].iteration):
        return
    if message.is_spoilt:
        found = f"{keeper.title}: {message.failure}"
        context.end_job(JobState.FAILED, f"{found}; {last_good(job)}; {DIVERGED}")
    elif message.failure:
        _give_up(context, message.iteration, f"{keeper.title}: {message.failure}")
    elif message.is_whole:
        _note_whole(context, message.iteration)
    else:
        pieces = job.checkpoints.saving.setdefault(message.iteration, {})
        pieces |= {piece.start: piece for piece in message.pieces}
        if _reaches(pieces) == max(worker.parameters for worker in job.workers.values()):
            _order_manifest(context, message.iteration)


def last_good(job: Job) -> str:
    """The last good checkpoint, as a sentence for a job with a NaN or infinite loss; bad values are never saved."""
    kept = job.checkpoints.kept
    return f"the last good checkpoint is of iteration {kept[-1].iteration}" if kept else "there is no checkpoint"


def on_restore_failed(context: Context, keeper: Process, message: RestoreFailed) -> None:
    """A process cannot start from the ordered checkpoint: try the next older one."""
    job = context.job
    bad = [each for each in job.checkpoints.kept if each.iteration == message.iteration]
    if not bad:
        return
    job.checkpoints.kept = [each for each in job.checkpoints.kept if each.iteration != message.iteration]
    reason = f"{keeper.title} cannot use the checkpoint of iteration {message.iteration}: {message.reason}"
    context.emit(SkipCheckpoint, reason, iteration=message.iteration)
    roll_back(context, reason)


def checkpoint_is_due(context: Context) -> bool:
    """Whether an asynchronous job has processed enough for its next checkpoint, and can be held for it now."""
    job, checkpoint = context.job, context.spec.checkpoint
    if checkpoint is None or job.checkpoints.stage or job.hold.sequence is not None:
        return False
    if job.state is not JobState.RUNNING or job.end.stop_at is not None:
        return False
    return (job.samples.cursor - job.samples.dropped) // job.batch >= job.checkpoints.saved_rounds + checkpoint.every


def hold_for_checkpoint(context: Context) -> None:
    """Stop every worker, so that no update is in flight to a server."""
    job = context.job
    job.checkpoints.stage = "hold"
    job.checkpoints.saved_rounds = (job.samples.cursor - job.samples.dropped) // job.batch
    granting.hold(context, "a checkpoint: all workers stop for it")


def begin_cut(context: Context) -> None:
    """Every worker has stopped: the servers save their blocks."""
    job = context.job
    job.checkpoints.stage = "save"
    job.checkpoints.save_at = (
        max((job.workers[rank].last_completed for rank in job.generation.roster), default=job.round.completed) + 1
    )
    sharing.remember_data(context, job.checkpoints.save_at)
    _order_keepers(
        context, f"every worker has stopped: save all blocks as the checkpoint of iteration {job.checkpoints.save_at}"
    )


def choose_start(context: Context, ready: Sequence[int]) -> bool:
    """If the spec names a checkpoint to start from, begin with the newest that every process with parameters can use.

    False if there is none. ``ready``: ranks of the workers that the job begins with.
    """
    job, spec = context.job, context.spec
    if spec.start_from is None:
        return True
    holders: list[Process] = [job.workers[rank] for rank in ready] if spec.workers_hold else [*job.live_servers]
    common = set.intersection(*({found.iteration for found in each.found} for each in holders))
    skipped = sorted({reason for each in holders for reason in each.skipped})
    for reason in skipped:
        context.emit(SkipCheckpoint, reason, iteration=0)
    positions = {found.iteration: found.position for found in holders[0].found}
    job.checkpoints.kept = [
        Checkpoint(iteration=each, position=positions[each], stop_at=spec.stop.iterations, is_start=True)
        for each in sorted(common)
    ]
    if not job.checkpoints.kept:
        why = "; ".join(skipped) or f"{'workers' if spec.workers_hold else 'servers'} found different ones"
        context.end_job(JobState.FAILED, f"no checkpoint to start from: {why}")
        return False
    newest = job.checkpoints.kept[-1]
    if spec.stop.iterations is not None and newest.iteration >= spec.stop.iterations:
        found = f"the checkpoint is of iteration {newest.iteration}, and the job ends before {spec.stop.iterations}"
        context.end_job(JobState.FAILED, f"nothing is left to do: {found}")
        return False
    restore(context, newest)
    return True


def _note_whole(context: Context, iteration: int) -> None:
    job, checkpoint = context.job, context.spec.checkpoint
    whole = job.checkpoints.whole
    if whole is None or whole.iteration != iteration or checkpoint is None:
        return
    kept = Checkpoint(
        iteration=iteration,
        position=whole.position,
        stop_at=job.end.stop_at,
        dropped=context.mode.dropped(job),
        splits=job.checkpoints.splits.get(iteration, b""),
    )
    job.checkpoints.splits = {each: splits for each, splits in job.checkpoints.splits.items() if each > iteration}
    job.checkpoints.kept = [*(each for each in job.checkpoints.kept if not each.is_start), kept][-checkpoint.keep :]
    job.checkpoints.whole = None
    job.checkpoints.saving = {each: pieces for each, pieces in job.checkpoints.saving.items() if each > iteration}
    size = sum(piece.bytes for piece in whole.pieces)
    reason = f"{len(whole.pieces)} blocks of {size / 1e6:.1f} MB in all are on disk"
    context.emit(KeepCheckpoint, reason, iteration=iteration, position=whole.position, bytes=size)
    granting.finish_if_all_have(context)


def _order_manifest(context: Context, iteration: int) -> None:
    job = context.job
    pieces = list(job.checkpoints.saving.pop(iteration).values())
    position = context.mode.position_of(job, iteration)
    if position is None:
        return
    job.checkpoints.whole = WholeCheckpoint(iteration=iteration, position=position, pieces=pieces)
    _order_keepers(context, f"every block of iteration {iteration} is on disk: its manifest can be written")
    _go_on(context, f"every block of iteration {iteration} is kept")


def _give_up(context: Context, iteration: int, reason: str) -> None:
    job = context.job
    job.checkpoints.saving.pop(iteration, None)
    job.checkpoints.whole = None
    if job.state is JobState.FINISHING:  # no worker is left to hold
        context.emit(SkipCheckpoint, reason, iteration=iteration)
        granting.finish_without_checkpoint(context)
        return
    granting.pause(context, "checkpoint", reason)
    _go_on(context, reason)


def _go_on(context: Context, reason: str) -> None:
    """Workers no longer need to stop for this checkpoint."""
    job = context.job
    if job.checkpoints.stage:
        job.checkpoints.stage, job.checkpoints.save_at = "", None
        if not job.requests.choices:
            granting.release(context, reason)


def _reaches(pieces: Mapping[int, SavedBlock]) -> int:
    """How many parameters the pieces cover from the first one on without a gap."""
    end = 0
    while (piece := pieces.get(end)) is not None:
        end = piece.stop
    return end


def _order_keepers(context: Context, reason: str) -> None:
    job = context.job
    if context.spec.workers_hold:
        ordering.issue(context, job.workers[job.generation.roster[0]], reason)
        return
    job.sequence += 1
    for server in job.live_servers:
        ordering.issue_server_orders(context, server, reason)


def roll_back(context: Context, lost: str) -> None:
    """Go back to the latest checkpoint, or end the job if there is none."""
    target = rollback_target(context)
    if target is None:
        none = "there is no checkpoint, and the spec does not allow a restart"
        cure = "next time, set checkpoint: {every: N}, or elastic: {from_scratch: true}"
        context.end_job(JobState.FAILED, f"{lost}; its parameters are lost: {none}; {cure}")
        return
    go_back(context, target, lost)


def go_back(context: Context, target: Checkpoint, lost: str) -> None:
    """End all processes and start new ones, which continue from ``target``."""
    job = context.job
    redone = f"iterations {target.iteration} to {job.round.completed} are repeated"
    repeated = redone if target.iteration < job.round.completed else f"iteration {job.round.completed} is repeated"
    again = repeated if target.iteration <= job.round.completed else "no complete iteration is repeated"
    where = f"the checkpoint of iteration {target.iteration}" if target.iteration else "the beginning"
    reason = f"{lost}; all go back to {where}, {again}"
    context.emit(RollBack, reason, to_iteration=target.iteration, completed=job.round.completed)
    job.starts.is_rebuilding = True
    job.starts.rebuild_ms = context.now_ms
    job.pauses[granting.rebuilding_cause(context)] = reason
    if job.state is not JobState.PAUSED:
        context.move_job(JobState.PAUSED, reason, awaited=granting.awaited(job))
    if job.placement.change is not None:
        placing.abandon_change(context, reason)
    restore(context, target)
    sharing.restore_data(context, target)
    for process in job.live_processes:
        context.move_process(process, ProcessState.STOPPED, "it restarts from the checkpoint")
        context.stop_process(process, reason)
        if isinstance(process, Worker) and process.index in job.requests.left_out:
            continue
        if process.agent in job.starts.away:
            job.starts.revivals[process.title] = Revival(number=0, due_ms=context.now_ms, wants_slot=True)
            context.report_process(process, "waits for a free slot")
        else:
            restarts.start_instance(context, restarts.slot_of(process))


def rollback_target(context: Context) -> Checkpoint | None:
    """The checkpoint that a rollback would use; None if the job would fail."""
    job = context.job
    if job.checkpoints.kept:
        return job.checkpoints.kept[-1]
    if context.spec.elastic.from_scratch or job.round.completed < 0:
        return Checkpoint(iteration=0, position=0, stop_at=context.spec.stop.iterations)
    return None


def restore(context: Context, target: Checkpoint) -> None:
    """Reset the records to the state before ``target.iteration``; the states of policies stay."""
    # An asynchronous job ends when all samples are handed out: until then its end is not known.
    context.job.roll_back(target, stop_at=context.mode.stop_again(target))


def begin_refill(context: Context, server: Server, lost: str) -> bool:
    """Request the workers' copies of the blocks of ``server``; False if a rollback is better or there are no copies."""
    job, before = context.job, context.job.refilling.current
    reporting = [rank for rank in job.generation.roster if job.workers[rank].state in AT_WORK]
    if not reporting or not job.placement.blocks or not _is_best(context):
        return False
    blocks = {block.index for block in job.placement.blocks if block.server == server.index}
    servers = {server.index}
    if before is not None:
        blocks, servers = blocks | set(before.lost), servers | set(before.servers)
    job.refilling.count += 1
    job.checkpoints.stage, job.checkpoints.save_at = "", None
    reason = f"{lost}; a new server starts with its blocks as the workers last pulled them"
    job.refilling.current = Refill(
        number=job.refilling.count,
        servers=sorted(servers),
        lost=sorted(blocks),
        reporting=reporting,
        reason=lost,
        began_ms=context.now_ms if before is None else before.began_ms,
        count=len(blocks),
    )
    was_paused = job.state is JobState.PAUSED
    granting.pause(context, "servers", reason)
    if was_paused:
        ordering.issue_all(context, reason)
    advance_refill(context)
    return True


def on_copies(context: Context, worker: Worker, message: CopiesHeld) -> None:
    """A worker reports its copies."""
    refill = context.job.refilling.current
    if refill is None or message.refill != refill.number or worker.index not in refill.reporting:
        return
    refill.copies[worker.index] = {
        block: (copies.version, copies.steps) for copies in message.copies for block in copies.blocks
    }
    advance_refill(context)


def on_worker_gone(context: Context, worker: Worker) -> None:
    """A worker died or finished: its copies are gone."""
    refill = context.job.refilling.current
    if refill is None or worker.index not in refill.reporting:
        return
    refill.reporting.remove(worker.index)
    refill.copies.pop(worker.index, None)
    advance_refill(context)


def on_filled(context: Context, message: BlocksFilled) -> None:
    """A server has stored the copies that it received."""
    refill = context.job.refilling.current
    if refill is not None:
        refill.lost = [block for block in refill.lost if block not in message.blocks]
        advance_refill(context)


def advance_refill(context: Context) -> None:
    """Once the new servers are connected and all workers have reported, fill the missing blocks; then end.

    Called after each event while blocks are missing: workers that left meanwhile are not waited for.

    Workers get the new servers only then: a worker that knows them no longer uses the lost ones.
    """
    job, refill = context.job, context.job.refilling.current
    if refill is None or job.state in JOB_OVER:
        return
    refill.reporting = [rank for rank in refill.reporting if job.counts(rank) and job.workers[rank].state in AT_WORK]
    gone = {block for block, rank in refill.fills.items() if rank not in refill.reporting and block in refill.lost}
    refill.fills = {block: rank for block, rank in refill.fills.items() if block not in gone}
    refill.copies = {rank: copies for rank, copies in refill.copies.items() if rank in refill.reporting}
    if set(refill.reporting) - refill.copies.keys():
        return
    # Without workers no copy will come: do not wait for the servers.
    if refill.reporting and not all(placing.is_up(job.servers[index]) for index in refill.servers):
        return
    nowhere = [block for block in refill.lost if not _holders(refill, block)]
    if nowhere and not _is_untouched(job):
        job.refilling.current = None
        missing = f"no worker has a complete copy of {len(nowhere)} of its blocks"
        roll_back(context, f"{refill.reason}; {missing if refill.reporting else _ALL_GONE}")
        return
    if not all(placing.is_up(job.servers[index]) for index in refill.servers):
        return
    refill.lost = [block for block in refill.lost if block not in nowhere]
    chosen = _choose_copies(context, refill)
    if not refill.placed:
        _place_refill(context, refill)
    else:
        for rank in chosen:
            ordering.issue(context, job.workers[rank], "its copies of lost blocks are now the newest")
    if not refill.lost:
        _finish_refill(context, refill)


def _choose_copies(context: Context, refill: Refill) -> list[int]:
    """Choose the worker with the newest copy of each block that has none yet; returns the chosen ranks."""
    chosen: set[int] = set()
    for block in refill.lost:
        if block in refill.fills:
            continue
        best = max(_holders(refill, block), key=lambda rank: (_worth(context, refill, rank, block), -rank))
        refill.fills[block] = best
        version = refill.copies[best][block][0]
        refill.version = version if refill.version is None else min(refill.version, version)
        chosen.add(best)
    return sorted(chosen)


def _place_refill(context: Context, refill: Refill) -> None:
    """Send all processes the new servers."""
    job = context.job
    refill.placed = True
    job.placement.renew()
    job.refilling.by_block = job.refilling.by_block | {
        block: job.refilling.by_block.get(block, 0) + 1 for block in refill.lost
    }
    named = ", ".join(f"s{index}" for index in refill.servers)
    placing.placement_holds(context, f"{named} restarted and receives its blocks from workers")


def _worth(context: Context, refill: Refill, rank: int, block: int) -> tuple[int, int]:
    """Sort key of a copy. In lockstep the version decides which is newer; otherwise the number of steps."""
    version, steps = refill.copies[rank][block]
    return context.mode.worth(version, steps)


def _finish_refill(context: Context, refill: Refill) -> None:
    job, spec = context.job, context.spec
    job.refilling.current = None
    ranks = sorted(set(refill.fills.values()))
    named = ", ".join(f"w{rank}" for rank in ranks)
    what = f"{refill.count} block{'s' if refill.count != 1 else ''}"
    reason = (
        f"{what} restarted from the values that {named} had pulled"
        if ranks
        else f"{what} restarted from their initial values"
    )
    if ranks and not _is_stateless(context):
        reason += f"; what {spec.applied.name} stored about them is lost"
    if ranks and context.mode.loses_unpulled:
        reason += "; updates that no worker had pulled are lost"
    context.emit(
        RefillBlocks,
        f"{refill.reason}; {reason}",
        servers=refill.servers,
        blocks=refill.count,
        ranks=ranks,
        version=refill.version or 0,
        took_s=(context.now_ms - refill.began_ms) / 1000,
    )
    ordering.issue_all(context, reason)
    granting.lift(context, "servers", reason)


def _is_best(context: Context) -> bool:
    """Whether workers can have copies of the parameters, and no checkpoint is better."""
    job, spec = context.job, context.spec
    if spec.workers_hold or job.starts.is_rebuilding:
        return False
    return not job.checkpoints.kept or (not context.mode.loses_unpulled and _is_stateless(context))


def _is_stateless(context: Context) -> bool:
    """Whether servers have no state besides the parameters: plain SGD."""
    return is_stateless(context.spec.applied)


def _is_untouched(job: Job) -> bool:
    """Whether no update was applied yet, so that any server can begin with the initial parameters."""
    return job.round.completed < (job.checkpoints.restore.iteration if job.checkpoints.restore is not None else 0)


def _holders(refill: Refill, block: int) -> list[int]:
    return [rank for rank, copies in sorted(refill.copies.items()) if block in copies]
