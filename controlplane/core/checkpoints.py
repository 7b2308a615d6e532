"""Checkpoints: when all blocks were kept at one version, what of them holds, and which one a job begins with.

In lockstep the servers keep every n-th version by themselves. Without lockstep every worker is held at a boundary, the
servers keep what they have, and all go on. Once every block is on disk one server writes the manifest; only then does
the checkpoint count. Where the workers hold the parameters, the first of them keeps every n-th version, and writes the
manifest too. Where the data are split among the workers, how far each had come in them is kept with it, for
this job alone. What policies have learned is not in it: a rollback keeps it, and another job learns anew.
"""

from collections.abc import Mapping, Sequence

from controlplane.core import ending, handout, pausing, releases, rollback, standing
from controlplane.core.commands import KeepCheckpoint, SkipCheckpoint
from controlplane.core.handling import Handling
from controlplane.core.records import Checkpoint, Process
from controlplane.core.state import Job
from controlplane.core.states import JobState
from controlplane.protocol.checkpoints import SavedBlock, WholeCheckpoint
from controlplane.protocol.messages import CheckpointSaved, RestoreFailed


def on_saved(handling: Handling, keeper: Process, message: CheckpointSaved) -> None:
    """Something of a checkpoint was written, or could not be."""
    job = handling.job
    if job.lives.is_rebuilding or (job.checkpoints.kept and message.iteration <= job.checkpoints.kept[-1].iteration):
        return
    if message.is_spoilt:
        found = f"{keeper.title}: {message.failure}"
        ending.end(handling, JobState.FAILED, f"{found}; {last_good(job)}; try a smaller learning rate")
    elif message.failure:
        _give_up(handling, message.iteration, f"{keeper.title}: {message.failure}")
    elif message.is_whole:
        _note_whole(handling, message.iteration)
    else:
        pieces = job.checkpoints.saving.setdefault(message.iteration, {})
        pieces |= {piece.start: piece for piece in message.pieces}
        if _reaches(pieces) == max(worker.parameters for worker in job.workers.values()):
            _order_manifest(handling, message.iteration)


def last_good(job: Job) -> str:
    """Where a job whose numbers are spoilt could be begun again, as a sentence; one that is spoilt is never kept."""
    kept = job.checkpoints.kept
    return f"the last good checkpoint is of iteration {kept[-1].iteration}" if kept else "there is no checkpoint"


def on_restore_failed(handling: Handling, keeper: Process, message: RestoreFailed) -> None:
    """Somebody cannot begin with the checkpoint that it was told: the next older one is tried."""
    job = handling.job
    bad = [each for each in job.checkpoints.kept if each.iteration == message.iteration]
    if not bad:
        return
    job.checkpoints.kept = [each for each in job.checkpoints.kept if each.iteration != message.iteration]
    reason = f"{keeper.title} cannot use the checkpoint of iteration {message.iteration}: {message.reason}"
    handling.give(SkipCheckpoint, reason, iteration=message.iteration)
    rollback.begin(handling, reason)


def is_due(handling: Handling) -> bool:
    """Whether an asynchronous job has processed enough since the last checkpoint, and can be held for one now."""
    job, asked = handling.job, handling.spec.checkpoint
    if asked is None or job.checkpoints.stage or job.hold.sequence is not None:
        return False
    if job.state is not JobState.RUNNING or job.end.stop_at is not None:
        return False
    return (job.samples.cursor - job.samples.dropped) // job.batch >= job.checkpoints.saved_rounds + asked.every


def hold_for_one(handling: Handling) -> None:
    """Have every worker stand, so that nothing is on its way to a server."""
    job = handling.job
    job.checkpoints.stage = "hold"
    job.checkpoints.saved_rounds = (job.samples.cursor - job.samples.dropped) // job.batch
    pausing.hold(handling, "a checkpoint: every worker stands for it")


def cut(handling: Handling) -> None:
    """Every worker stands: the servers keep what they have."""
    job = handling.job
    job.checkpoints.stage = "save"
    job.checkpoints.save_at = (
        max((standing.stand(job.workers[rank]) for rank in job.generation.roster), default=job.round.completed) + 1
    )
    handout.remember(handling, job.checkpoints.save_at)
    _tell_keepers(
        handling, f"every worker stands: keep all blocks as the checkpoint of iteration {job.checkpoints.save_at}"
    )


def choose_start(handling: Handling, ready: Sequence[int]) -> bool:
    """Begin with the newest checkpoint that everybody can use who holds parameters, where one is asked for.

    False if there is none. ``ready``: ranks of the workers that the job begins with.
    """
    job, spec = handling.job, handling.spec
    if spec.start_from is None:
        return True
    holders: list[Process] = [job.workers[rank] for rank in ready] if spec.workers_hold else [*job.live_servers]
    common = set.intersection(*({found.iteration for found in each.found} for each in holders))
    skipped = sorted({reason for each in holders for reason in each.skipped})
    for reason in skipped:
        handling.give(SkipCheckpoint, reason, iteration=0)
    positions = {found.iteration: found.position for found in holders[0].found}
    job.checkpoints.kept = [
        Checkpoint(iteration=each, position=positions[each], stop_at=spec.stop.iterations, is_start=True)
        for each in sorted(common)
    ]
    if not job.checkpoints.kept:
        why = "; ".join(skipped) or f"{'workers' if spec.workers_hold else 'servers'} found different ones"
        ending.end(handling, JobState.FAILED, f"no checkpoint that it could start from: {why}")
        return False
    newest = job.checkpoints.kept[-1]
    if spec.stop.iterations is not None and newest.iteration >= spec.stop.iterations:
        found = f"the checkpoint is of iteration {newest.iteration}, and the job ends before {spec.stop.iterations}"
        ending.end(handling, JobState.FAILED, f"nothing is left to do: {found}")
        return False
    rollback.restore(handling, newest)
    return True


def _note_whole(handling: Handling, iteration: int) -> None:
    job, asked = handling.job, handling.spec.checkpoint
    whole = job.checkpoints.whole
    if whole is None or whole.iteration != iteration or asked is None:
        return
    dropped = (
        job.samples.dropped + sum(_unused(job, rank) for rank in job.generation.roster)
        if handling.chosen.gate is not None
        else 0
    )
    kept = Checkpoint(
        iteration=iteration,
        position=whole.position,
        stop_at=job.end.stop_at,
        dropped=dropped,
        splits=job.checkpoints.splits.get(iteration, b""),
    )
    job.checkpoints.splits = {each: splits for each, splits in job.checkpoints.splits.items() if each > iteration}
    job.checkpoints.kept = [*(each for each in job.checkpoints.kept if not each.is_start), kept][-asked.keep :]
    job.checkpoints.whole = None
    job.checkpoints.saving = {each: pieces for each, pieces in job.checkpoints.saving.items() if each > iteration}
    size = sum(piece.bytes for piece in whole.pieces)
    reason = f"{len(whole.pieces)} blocks of {size / 1e6:.1f} MB in all are on disk"
    handling.give(KeepCheckpoint, reason, iteration=iteration, position=whole.position, bytes=size)
    ending.finish_if_all_have(handling)


def _order_manifest(handling: Handling, iteration: int) -> None:
    job = handling.job
    pieces = list(job.checkpoints.saving.pop(iteration).values())
    if handling.chosen.gate is None:
        if iteration < job.samples.origin_iteration:  # its samples were counted from another origin
            return
        position = job.samples.origin_position + (iteration - job.samples.origin_iteration) * job.width
    else:
        position = job.samples.cursor
    job.checkpoints.whole = WholeCheckpoint(iteration=iteration, position=position, pieces=pieces)
    _tell_keepers(handling, f"every block of iteration {iteration} is on disk: its manifest is to be written")
    _go_on(handling, f"every block of iteration {iteration} is kept")


def _give_up(handling: Handling, iteration: int, reason: str) -> None:
    job = handling.job
    job.checkpoints.saving.pop(iteration, None)
    job.checkpoints.whole = None
    if job.state is JobState.FINISHING:  # nobody is left to be held
        handling.give(SkipCheckpoint, reason, iteration=iteration)
        ending.finish_without_checkpoint(handling)
        return
    pausing.pause(handling, "checkpoint", reason)
    _go_on(handling, reason)


def _go_on(handling: Handling, reason: str) -> None:
    """Nobody needs to stand for this checkpoint any longer."""
    job = handling.job
    if job.checkpoints.stage:
        job.checkpoints.stage, job.checkpoints.save_at = "", None
        if not job.requests.choices:
            pausing.release(handling, reason)


def _unused(job: Job, rank: int) -> int:
    """Samples that a worker has leave for and has not used."""
    worker = job.workers[rank]
    return sum(max(0, each.last - max(each.first - 1, worker.done)) * each.share for each in worker.leases)


def _reaches(pieces: Mapping[int, SavedBlock]) -> int:
    """Up to which parameter there is no gap between the pieces."""
    end = 0
    while (piece := pieces.get(end)) is not None:
        end = piece.stop
    return end


def _tell_keepers(handling: Handling, reason: str) -> None:
    job = handling.job
    if handling.spec.workers_hold:
        releases.issue(handling, job.workers[job.generation.roster[0]], reason)
        return
    job.sequence += 1
    for server in job.live_servers:
        releases.issue_server_orders(handling, server, reason)
