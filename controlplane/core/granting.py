"""How far each worker may go: grants by the barrier, holding every worker at a boundary, and the end.

In lockstep the barrier grants some iterations ahead, and servers hold each pull until the updates of all are in. In
asynchronous modes each worker is released by itself, with its own samples. Everything about that costs the same per
report at any number of workers.

A job may be paused for several causes at once, each with its reason: a user asked for it, too few workers are
connected, limits forbid the shares of those that are, a batching policy failed. It resumes when the last cause is
lifted.
"""

from typing import Final, Literal

from controlplane.core import drawing, ordering, restarts
from controlplane.core.barriers import Arrival, Members, Passage, Progress, Release
from controlplane.core.commands import HoldWorker, MoveJob
from controlplane.core.context import Context, Policies
from controlplane.core.processes import AT_WORK, READY, UNREACHABLE, ProcessState, Worker
from controlplane.core.state import Hold, Job
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.messages import IterationReport

LEAD_ITERATIONS = 50
"""How far ahead a synchronous barrier grants at most."""

FIRST_LEAD_ITERATIONS = 4
"""How far ahead it grants while the length of an iteration is not known."""

LEAD_S = 15.0
"""How much time a grant should cover, so that workers continue during a restart of the control plane."""

MOST_LEASED = 10_000
"""How many iterations ahead samples are handed out at most, where workers continue by themselves."""

SMOOTHING = 0.2
"""Weight of the newest iteration in a worker's pace."""

Cause = Literal["operator", "ranks", "workers", "limits", "servers", "checkpoint", "policy"]

AWAITED: Final[dict[str, str]] = {
    "operator": "an operator to resume it",
    "checkpoint": "an operator to resume it",
    "ranks": "ranks",
    "workers": "more workers",
    "limits": "more workers",
    "servers": "its servers",
    "policy": "another batching policy, or an operator to resume it",
}

RANKS_AWAITED: Final = AWAITED["ranks"]
"""``awaited`` starts with this word only while a job waits for ranks."""

NAMED: Final = 8

BOUNDARY: Final = "every worker's next boundary"


def raise_watermarks(context: Context) -> dict[int, str]:
    """Grant each counting worker what a synchronous barrier allows; the reason, for each whose grant has grown."""
    job = context.job
    if context.chosen.async_barrier is not None or job.hold.sequence is not None:
        return {}
    if not context.mode.grants_iterations:
        for worker in job.counting:
            drawing.raise_to(worker, MAX_INT32)
        return {}
    progress = Progress(
        done={rank: job.workers[rank].done for rank in job.generation.roster},
        first_iteration=job.generation.first_iteration,
        lead=lead(context),
    )
    ends = [end - 1 for end in (job.end.stop_at, job.requests.join_at) if end is not None]
    if context.chosen.partitioned is not None:
        # A generation may begin behind the open iteration, but pieces are granted once all workers have reached it.
        ends.append(job.round.completed + 1)
    last = min(ends, default=None)
    grown: dict[int, str] = {}
    for rank, release in context.chosen.barrier.release(progress).items():
        mark, worker = release.watermark if last is None else min(release.watermark, last), job.workers[rank]
        if mark > worker.watermark:
            drawing.raise_to(worker, mark)
            grown[rank] = release.reason
    drawing.hand_out(context, job.generation.roster)
    return grown


def lead(context: Context) -> int:
    """How many iterations ahead a synchronous barrier may grant; one, where samples are granted with it."""
    return 1 if context.chosen.partitioned is not None else lead_of(context.job.pace.iteration_s)


def lead_of(iteration_s: float, *, lead_s: float = LEAD_S, most: int = LEAD_ITERATIONS) -> int:
    """How many iterations of that length may be granted ahead; 0.0: it is not known."""
    if iteration_s <= 0.0:
        return FIRST_LEAD_ITERATIONS
    return max(1, min(most, int(lead_s / iteration_s)))


def begin_asynchronous(context: Context) -> None:
    """A generation begins, or continues after a hold: grant all workers that the barrier releases. Orders follow."""
    job, policies = context.job, context.chosen
    if policies.async_barrier is None or not _lets_go(job):
        return
    going = [job.workers[rank] for rank in job.generation.roster if _continues(job.workers[rank])]
    members = Members(
        done={worker.index: worker.last_completed for worker in going},
        watermark={worker.index: worker.watermark for worker in going},
        seed=context.spec.seed,
        at_ms=context.now_ms,
    )
    policies.barrier_state, passage = policies.async_barrier.start(members, policies.barrier_state)
    for rank, release in passage.releases.items():
        _extend(context, job.workers[rank], release)
    _emit_waits(context, passage)
    job.updates.passed |= _let_in(context, passage)


def on_arrival(context: Context, worker: Worker, report: IterationReport) -> bool:
    """A worker waits or continues: the consequences for it and for workers that waited for it. False: no worker is
    released
    now.
    """
    job, policies = context.job, context.chosen
    busy_s = report.busy_s
    iteration_s = busy_s + report.waiting_s + report.coordination_s
    worker.pace_s += (iteration_s - worker.pace_s) * (SMOOTHING if worker.pace_s else 1.0)
    drawing.use_up(worker)
    if policies.async_barrier is None or not _lets_go(job):
        return False
    arrival = Arrival(
        rank=worker.index,
        done=worker.done,
        watermark=worker.watermark,
        busy_s=busy_s,
        at_ms=context.now_ms,
    )
    policies.barrier_state, passage = policies.async_barrier.arrive(arrival, policies.barrier_state)
    _let_pass(context, passage)
    return True


def next_look_ms(job: Job, policies: Policies) -> int | None:
    """When the barrier will evaluate waiting workers again, in milliseconds of the log's clock; None: never."""
    if policies.async_barrier is None or policies.barrier_state is None or job.state in JOB_OVER or not _lets_go(job):
        return None
    return policies.async_barrier.recheck_at_ms(policies.barrier_state)


def recheck(context: Context) -> None:
    """Evaluate waiting workers again, where the barrier asked for it."""
    policies = context.chosen
    due_ms = next_look_ms(context.job, policies)
    if policies.async_barrier is not None and due_ms is not None and due_ms <= context.now_ms:
        policies.barrier_state, passage = policies.async_barrier.recheck(context.now_ms, policies.barrier_state)
        _let_pass(context, passage)


def _let_pass(context: Context, passage: Passage) -> None:
    job, barrier = context.job, context.chosen.async_barrier
    for rank, release in passage.releases.items():
        worker = job.workers[rank]
        if _continues(worker) and _extend(context, worker, release):
            ordering.issue(context, worker, release.reason)
    if passage.waits:
        _emit_waits(context, passage)
    if barrier is not None and barrier.holds_updates and (passed := _let_in(context, passage)):
        # As one decision to all servers, so that each applies the same sum.
        job.updates.passed |= passed
        job.sequence += 1
        named = ", ".join(f"w{rank}" for rank in sorted(passed))
        for server in job.live_servers:
            ordering.issue_server_orders(context, server, f"the updates of {named} are applied as one sum")
    if drawing.left_over(job) == 0:
        reason = f"samples for {context.spec.stop.iterations} iterations were requested and handed out"
        stop_each(context, reason, soon=False)


def _extend(context: Context, worker: Worker, release: Release) -> bool:
    """Extend the grant, unless half of the possible one is still unused; whether it was extended."""
    done = worker.last_completed
    ahead = 1 if context.chosen.partitioned is not None else _ahead(context, worker)
    watermark = min(release.watermark, done + ahead)
    watermark = drawing.reach(context.job, worker, watermark)
    if watermark <= worker.watermark or worker.watermark - done > (watermark - done) // 2:
        return False
    granted = drawing.grant(context.job, worker, watermark)
    drawing.hand_out(context, [worker.index])
    return granted


def _ahead(context: Context, worker: Worker) -> int:
    """How many iterations ahead a worker is handed samples."""
    barrier = context.chosen.peer_barrier
    if barrier is None:
        return lead_of(worker.pace_s)
    return lead_of(worker.pace_s, lead_s=barrier.lease_s, most=MOST_LEASED)


def _emit_waits(context: Context, passage: Passage) -> None:
    for rank, wait in passage.waits.items():
        iteration = context.job.workers[rank].done + 1
        context.emit(HoldWorker, wait.reason, rank=rank, iteration=iteration, waits_for=wait.waits_for)


def _let_in(context: Context, passage: Passage) -> dict[int, int]:
    """PSP taken literally: up to which iteration updates of the workers released now are applied."""
    job, barrier = context.job, context.chosen.async_barrier
    if barrier is None or not barrier.holds_updates:
        return {}
    return {rank: job.workers[rank].done for rank in passage.releases if job.workers[rank].done >= 0}


def _lets_go(job: Job) -> bool:
    """Whether any worker may be released: no pause is requested, and samples are left to hand out."""
    return job.hold.sequence is None and job.end.stop_at is None


def _continues(worker: Worker) -> bool:
    return worker.state is READY or worker.state is UNREACHABLE


def pause(context: Context, cause: Cause, reason: str) -> None:
    """Every worker stops at its next boundary: add a cause, or change its reason."""
    job = context.job
    if job.pauses.get(cause) == reason:
        return
    job.pauses[cause] = reason
    if job.state is not JobState.PAUSED:
        must_stop_first = bool(job.generation.roster) and cause != "servers"
        boundary = BOUNDARY if must_stop_first else awaited(job)
        context.move_job(JobState.PAUSED, reason, awaited=boundary)
        hold(context, reason)
    else:
        context.emit(MoveJob, reason, state=job.state, awaited=awaited(job))


def lift(context: Context, cause: Cause, reason: str) -> None:
    """Remove one cause; the job resumes if it was the last."""
    job = context.job
    if job.pauses.pop(cause, None) is None:
        return
    if not job.pauses and job.state is JobState.PAUSED:
        resume(context, reason)
    elif job.pauses:
        left = next(iter(job.pauses.values()))
        context.emit(MoveJob, f"{reason}; still, {left}", state=job.state, awaited=awaited(job))


def resume(context: Context, reason: str) -> None:
    """From paused to running; a change that waits for every worker keeps holding them."""
    job = context.job
    job.pauses.clear()
    job.paused_ms += context.now_ms - job.since_ms
    context.move_job(JobState.RUNNING, reason, awaited=BOUNDARY if job.requests.choices else "")
    if not job.requests.choices:
        release(context, reason)


def await_ranks(context: Context, reason: str, awaited: str) -> None:
    """The job waits for ranks. No rank is ordered to stop: running ranks continue."""
    job = context.job
    if job.attachment.waits_since_ms is None:
        job.attachment.waits_since_ms = context.now_ms
        context.has_new_deadline = True
    if job.state in (JobState.RUNNING, JobState.FINISHING):
        job.pauses["ranks"] = reason
        context.move_job(JobState.PAUSED, reason, awaited=awaited)
    else:
        if job.state is JobState.PAUSED:
            job.pauses["ranks"] = reason
        context.emit(MoveJob, reason, state=job.state, awaited=awaited)


def go_on_with_ranks(context: Context, reason: str) -> None:
    """The ranks are here: the job runs, unless it was paused for another reason."""
    job = context.job
    job.attachment.waits_since_ms = None
    if job.pauses.pop("ranks", None) is None:
        return
    if job.pauses:
        hold(context, next(iter(job.pauses.values())))
        return
    job.paused_ms += context.now_ms - job.since_ms
    context.move_job(JobState.RUNNING, reason)


def awaited(job: Job) -> str:
    """The condition that a paused job waits for; "" if it is not paused."""
    parts = []
    for cause in job.pauses:
        expected = [title for title in [*job.starts.starting, *job.starts.revivals] if title[0] == cause[0]]
        named = ", ".join(expected[:NAMED]) + (f" and {len(expected) - NAMED} more" if len(expected) > NAMED else "")
        parts.append(AWAITED[cause] + (f": {named}" if named else ""))
    return "; ".join(dict.fromkeys(parts))


def rebuilding_cause(context: Context) -> Cause:
    """The processes that a job waits for when all of them restart."""
    return "workers" if context.spec.reduces else "servers"


def hold(context: Context, reason: str) -> None:
    """Stop every worker at its next boundary."""
    job = context.job
    if job.hold.sequence is None:
        job.hold = Hold(sequence=job.sequence + 1)
    if job.requests.choices and job.state is JobState.RUNNING:
        context.emit(MoveJob, reason, state=job.state, awaited=BOUNDARY)
    ordering.issue_all(context, reason)


def release(context: Context, reason: str) -> None:
    """No pause is requested any more."""
    job = context.job
    if job.hold.sequence is None or job.state is JobState.PAUSED:
        return
    job.release_hold()
    raise_watermarks(context)
    begin_asynchronous(context)
    ordering.issue_all(context, reason)


def stop_at(context: Context, iteration: int, reason: str) -> None:
    """Let the job end before ``iteration``, which no worker has been granted yet."""
    job = context.job
    if job.end.stop_at is not None and job.end.stop_at <= iteration:
        return
    job.end.stop_at = iteration
    job.end.reason = reason
    ordering.issue_all(context, f"stop before iteration {iteration}: {reason}")


def stop_soon(context: Context, reason: str) -> None:
    """Let the job end as early as all can agree on: after the last iteration that any worker was granted."""
    job = context.job
    if not context.mode.ends_together:
        stop_each(context, reason, soon=True)
        return
    if not context.mode.grants_iterations:  # they agree on the boundary by themselves
        stop_at(context, job.round.completed + 1, reason)
        return
    stop_at(context, max(job.workers[rank].watermark for rank in job.generation.roster) + 1, reason)


def stop_each(context: Context, reason: str, *, soon: bool) -> None:
    """Let each worker of an asynchronous job end: ``soon``, at its next boundary, or else once its grant is used up.

    Waiting workers end immediately in both cases: otherwise they would wait forever.
    """
    job = context.job
    if job.end.stop_at is not None:
        return
    job.end.reason = reason
    job.requests.choices = {}
    if job.state is not JobState.PAUSED:
        job.release_hold()
    for rank in job.generation.roster:
        worker = job.workers[rank]
        worker.stop_at = (worker.last_completed if soon else worker.watermark) + 1
    job.end.stop_at = max(job.workers[rank].watermark for rank in job.generation.roster) + 1
    sentence = f"stop {'at the next boundary' if soon else 'after what was handed out'}: {reason}"
    barrier = context.chosen.async_barrier
    if barrier is not None and barrier.holds_updates:
        # No worker is released any more. This is a new generation, so that the last pull is answered after that.
        job.generation.number += 1
        ordering.issue_all(context, sentence)
        for server in job.live_servers:
            ordering.issue_server_orders(context, server, sentence)
    else:
        ordering.issue_all(context, sentence)


def _let_finish(context: Context) -> None:
    """Only one worker is left: if it saves the final parameters, they will not change any more."""
    evaluator = context.job.workers[context.job.generation.roster[0]]
    if evaluator.state in AT_WORK:
        ordering.issue(context, evaluator, "no other worker pushes any more")


def worker_finished(context: Context, worker: Worker) -> None:
    """One worker has reached the job's end."""
    job = context.job
    if job.state is JobState.RUNNING:
        context.move_job(JobState.FINISHING, job.end.reason, awaited="every worker's end and the saved parameters")
        _leave_out_latecomers(context)
    if not context.mode.ends_together and job.starts.at_work == 1:
        _let_finish(context)
    restarts.finish_if_all_have(context)


def _leave_out_latecomers(context: Context) -> None:
    """Workers that have not joined by now will not join: the job ends without them."""
    job = context.job
    for title in [title for title in job.starts.revivals if title[0] == "w"]:
        del job.starts.revivals[title]
    for worker in job.live_workers:
        if not job.counts(worker.index):
            context.move_process(worker, ProcessState.STOPPED, "the job ends before it could count")
            context.stop_process(worker, "the job ends before it could count")
