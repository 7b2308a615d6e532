"""The parameters are lost with whoever held them: the whole job goes back to what is still known of them.

Every process begins a new life, so that nothing of what was under way can count: partial sums end with the servers,
and updates of the old lives are stale. Iterations after the checkpoint are done again, on the same samples: a common
batch is cut anew by the shares of then, and in splits of their own workers go on where they stood.
"""

from controlplane.core import ending, handout, moving, pausing, revival
from controlplane.core.commands import RollBack
from controlplane.core.handling import Handling
from controlplane.core.records import Checkpoint, Revival, Worker
from controlplane.core.states import JobState, ProcessState


def begin(handling: Handling, lost: str) -> None:
    """Go back to the latest checkpoint, or end the job if there is none."""
    target = target_of(handling)
    if target is None:
        none = "there is no checkpoint, and the spec does not let the job begin anew"
        cure = "another time set checkpoint: {every: N}, or elastic: {from_scratch: true}"
        ending.end(handling, JobState.FAILED, f"{lost}; its parameters are lost: {none}; {cure}")
        return
    go_back(handling, target, lost)


def go_back(handling: Handling, target: Checkpoint, lost: str) -> None:
    """End every life and begin new ones, which go on from ``target``."""
    job = handling.job
    redone = f"iterations {target.iteration} to {job.round.completed} are done again"
    told = redone if target.iteration < job.round.completed else f"iteration {job.round.completed} is done again"
    again = told if target.iteration <= job.round.completed else "no complete iteration is done again"
    where = f"the checkpoint of iteration {target.iteration}" if target.iteration else "the beginning"
    reason = f"{lost}; all go back to {where}, {again}"
    handling.give(RollBack, reason, to_iteration=target.iteration, completed=job.round.completed)
    job.lives.is_rebuilding = True
    job.lives.rebuild_ms = handling.now_ms
    job.pauses[pausing.rebuilding_cause(handling)] = reason
    if job.state is not JobState.PAUSED:
        handling.move_job(JobState.PAUSED, reason, awaited=pausing.awaited(job))
    if job.placement.change is not None:
        moving.abandon(handling, reason)
    restore(handling, target)
    handout.go_back(handling, target)
    for process in job.live_processes:
        handling.move_process(process, ProcessState.STOPPED, "it begins anew from the checkpoint")
        handling.stop_process(process, reason)
        if isinstance(process, Worker) and process.index in job.requests.left_out:
            continue
        if process.agent in job.lives.away:
            job.lives.revivals[process.title] = Revival(number=0, due_ms=handling.now_ms, wants_slot=True)
            handling.tell_process(process, "waits for a free slot")
        else:
            revival.start(handling, revival.slot_of(process))


def target_of(handling: Handling) -> Checkpoint | None:
    """Where the job would go back to; None where it would have to fail."""
    job = handling.job
    if job.checkpoints.kept:
        return job.checkpoints.kept[-1]
    if handling.spec.elastic.from_scratch or job.round.completed < 0:
        return Checkpoint(iteration=0, position=0, stop_at=handling.spec.stop.iterations)
    return None


def restore(handling: Handling, target: Checkpoint) -> None:
    """The records as they were before ``target.iteration``; what policies have learned stays."""
    # Without lockstep a job ends when all samples are handed out: until then nobody is told where.
    handling.job.roll_back(target, stop_at=target.stop_at if handling.chosen.gate is None else None)
