"""How far each worker may continue: grants by the barrier, pauses, and the end of a job.

**Grants.** In lockstep the barrier grants some iterations ahead, and servers delay each pull until all updates have
arrived. A barrier may complete an iteration early: cut it short (A-BSP), or name the updates that it consists of
(backup workers). In asynchronous modes each worker is released separately, with its own samples. The cost of all of
this is constant per report, at any number of workers.

**Pauses.** A job may be paused for several causes at once, each with its reason: a user asked for it, too few workers
are connected, limits forbid the shares of those that are, a batching policy failed. It resumes when the last cause is
lifted.

**The end.** All workers stop before the same iteration, or, in asynchronous modes, each at its own. The job has
succeeded once every live worker has reached its end and a checkpoint that is due there is complete.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from controlplane.core import ordering, sharing
from controlplane.core.barriers import Arrival, Cut, Members, Passage, Processed, Progress, Quorum, Release
from controlplane.core.commands import CutIteration, HoldWorker, MoveJob, NameQuorum, NoteMicroBatch, NoteUpdates
from controlplane.core.context import Context, Policies, named
from controlplane.core.state import Hold, Job
from controlplane.core.states import (
    AT_WORK,
    JOB_OVER,
    RANKS_AWAITED,
    READY,
    UNREACHABLE,
    JobState,
    ProcessState,
    Worker,
)
from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.messages import Computed, IterationReport, MicroBatch, ProgressReport, ServerReport

LEAD_ITERATIONS = 50
"""Maximum number of iterations that a synchronous barrier grants ahead."""

FIRST_LEAD_ITERATIONS = 4
"""The same while the iteration time is not known."""

LEAD_S = 15.0
"""Duration that a grant should cover, so that workers continue during a restart of the control plane."""

MOST_LEASED = 10_000
"""Maximum number of iterations for which samples are assigned ahead, if workers continue by themselves."""

SMOOTHING = 0.2
"""Weight of the newest iteration in a worker's pace."""

Cause = Literal["operator", "ranks", "workers", "limits", "servers", "checkpoint", "policy"]

AWAITED: Final[dict[str, str]] = {
    "operator": "an operator to resume it",
    "checkpoint": "an operator to resume it",
    "ranks": RANKS_AWAITED,
    "workers": "more workers",
    "limits": "more workers",
    "servers": "its servers",
    "policy": "another batching policy, or an operator to resume it",
}

BOUNDARY: Final = "every worker's next boundary"


def raise_watermarks(context: Context) -> dict[int, str]:
    """Grant each counting worker what a synchronous barrier allows; return the reason for each
    whose grant has grown.
    """
    job = context.job
    if context.chosen.async_barrier is not None or job.hold.sequence is not None:
        return {}
    if not context.mode.grants_iterations:
        for worker in job.counting:
            sharing.raise_watermark(worker, MAX_INT32)
        return {}
    progress = Progress(
        done={rank: job.workers[rank].done for rank in job.generation.roster},
        first_iteration=job.generation.first_iteration,
        lead=lead(context),
    )
    ends = [end - 1 for end in (job.end.stop_at, job.requests.join_at) if end is not None]
    if context.chosen.partitioned is not None:
        # A generation may begin after the open iteration, but pieces are granted once all workers have reached it.
        ends.append(job.round.completed + 1)
    last = min(ends, default=None)
    grown: dict[int, str] = {}
    for rank, release in context.chosen.barrier.release(progress).items():
        mark, worker = release.watermark if last is None else min(release.watermark, last), job.workers[rank]
        if mark > worker.watermark:
            sharing.raise_watermark(worker, mark)
            grown[rank] = release.reason
    sharing.hand_out_pieces(context, job.generation.roster)
    return grown


def lead(context: Context) -> int:
    """How many iterations ahead a synchronous barrier may grant; one if samples are granted with it."""
    return 1 if context.chosen.partitioned is not None else lead_of(context.job.pace.iteration_s)


def lead_of(iteration_s: float, *, lead_s: float = LEAD_S, most: int = LEAD_ITERATIONS) -> int:
    """How many iterations of that duration may be granted ahead; 0.0: it is not known."""
    if iteration_s <= 0.0:
        return FIRST_LEAD_ITERATIONS
    return max(1, min(most, int(lead_s / iteration_s)))


def begin_asynchronous(context: Context) -> None:
    """A generation begins, or continues after a hold: grant all workers that the barrier releases. Orders follow."""
    job, policies = context.job, context.chosen
    if policies.async_barrier is None or not _may_release(job):
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
    job.updates.passed |= _applied_up_to(context, passage)


def on_arrival(context: Context, worker: Worker, report: IterationReport) -> bool:
    """A worker has arrived at the barrier: release it and those that waited for it. False: none can be released now."""
    job, policies = context.job, context.chosen
    busy_s = report.busy_s
    iteration_s = busy_s + report.waiting_s + report.coordination_s
    worker.pace_s += (iteration_s - worker.pace_s) * (SMOOTHING if worker.pace_s else 1.0)
    sharing.drop_used_leases(worker)
    if policies.async_barrier is None or not _may_release(job):
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
    if (
        policies.async_barrier is None
        or policies.barrier_state is None
        or job.state in JOB_OVER
        or not _may_release(job)
    ):
        return None
    return policies.async_barrier.recheck_at_ms(policies.barrier_state)


def recheck(context: Context) -> None:
    """Evaluate waiting workers again, if the barrier requested it."""
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
    if barrier is not None and barrier.holds_updates and (passed := _applied_up_to(context, passage)):
        # As one decision to all servers, so that each applies the same sum.
        job.updates.passed |= passed
        job.sequence += 1
        named = ", ".join(f"w{rank}" for rank in sorted(passed))
        for server in job.live_servers:
            ordering.issue_server_orders(context, server, f"the updates of {named} are applied as one sum")
    if sharing.samples_left(job) == 0:
        reason = f"samples for {context.spec.stop.iterations} iterations were requested and handed out"
        stop_each(context, reason, soon=False)


def _extend(context: Context, worker: Worker, release: Release) -> bool:
    """Extend the grant, unless half of the possible one is still unused; whether it was extended."""
    done = worker.last_completed
    ahead = 1 if context.chosen.partitioned is not None else _ahead(context, worker)
    watermark = min(release.watermark, done + ahead)
    watermark = sharing.limit_near_end(context.job, worker, watermark)
    if watermark <= worker.watermark or worker.watermark - done > (watermark - done) // 2:
        return False
    granted = sharing.grant_samples(context.job, worker, watermark)
    sharing.hand_out_pieces(context, [worker.index])
    return granted


def _ahead(context: Context, worker: Worker) -> int:
    """For how many iterations ahead a worker is assigned samples."""
    barrier = context.chosen.peer_barrier
    if barrier is None:
        return lead_of(worker.pace_s)
    return lead_of(worker.pace_s, lead_s=barrier.lease_s, most=MOST_LEASED)


def _emit_waits(context: Context, passage: Passage) -> None:
    for rank, wait in passage.waits.items():
        iteration = context.job.workers[rank].done + 1
        context.emit(HoldWorker, wait.reason, rank=rank, iteration=iteration, waits_for=wait.waits_for)


def _applied_up_to(context: Context, passage: Passage) -> dict[int, int]:
    """With literal PSP: the last iteration whose updates are applied, for the workers released now."""
    job, barrier = context.job, context.chosen.async_barrier
    if barrier is None or not barrier.holds_updates:
        return {}
    return {rank: job.workers[rank].done for rank in passage.releases if job.workers[rank].done >= 0}


def _may_release(job: Job) -> bool:
    """Whether workers may be released: no pause is requested, and samples are left."""
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
    """From paused to running; a change that waits for every worker keeps them stopped."""
    job = context.job
    job.pauses.clear()
    job.paused_ms += context.now_ms - job.since_ms
    context.move_job(JobState.RUNNING, reason, awaited=BOUNDARY if job.requests.choices else "")
    if not job.requests.choices:
        release(context, reason)


def await_ranks(context: Context, reason: str, awaited: str) -> None:
    """The job waits for ranks. Running ranks continue."""
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
    """The ranks are connected: the job runs, unless it was paused for another reason."""
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
        parts.append(AWAITED[cause] + (f": {named(expected)}" if expected else ""))
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
    """End the job before ``iteration``, which no worker has been granted yet."""
    job = context.job
    if job.end.stop_at is not None and job.end.stop_at <= iteration:
        return
    job.end.stop_at = iteration
    job.end.reason = reason
    ordering.issue_all(context, f"stop before iteration {iteration}: {reason}")


def stop_soon(context: Context, reason: str) -> None:
    """End the job as early as possible for all: after the last iteration that any worker was granted."""
    job = context.job
    if not context.mode.ends_together:
        stop_each(context, reason, soon=True)
        return
    if not context.mode.grants_iterations:  # they agree on the boundary themselves
        stop_at(context, job.round.completed + 1, reason)
        return
    stop_at(context, max(job.workers[rank].watermark for rank in job.generation.roster) + 1, reason)


def stop_each(context: Context, reason: str, *, soon: bool) -> None:
    """End each worker of an asynchronous job: at its next boundary if ``soon``, else when its grant is used up.

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
    finish_if_all_have(context)


def _leave_out_latecomers(context: Context) -> None:
    """Workers that have not joined by now will not join: the job ends without them."""
    job = context.job
    for title in [title for title in job.starts.revivals if title[0] == "w"]:
        del job.starts.revivals[title]
    for worker in job.live_workers:
        if not job.counts(worker.index):
            context.move_process(worker, ProcessState.STOPPED, "the job ends before it could count")
            context.stop_process(worker, "the job ends before it could count")


def begin_partial(context: Context, left: Mapping[int, int]) -> None:
    """A generation begins; ``left``: workers that no longer count, with their shares. Orders follow."""
    job, policies = context.job, context.chosen
    if policies.partial_barrier is not None:
        policies.barrier_state, cuts = policies.partial_barrier.begin(left, policies.barrier_state)
        for cut in cuts:
            _note_cut(context, cut)
    if policies.quorum_barrier is not None:
        policies.barrier_state, quorums = policies.quorum_barrier.appoint(
            list(job.generation.roster), job.updates.apply_from - 1, policies.barrier_state
        )
        for quorum in quorums:
            _note_quorum(context, quorum)


def on_progress(context: Context, worker: Worker, progress: ProgressReport) -> None:
    """A worker reports its progress within an iteration."""
    _observe_progress(context, worker, progress.iteration, progress.samples_done, None)


def on_micro_batch(context: Context, worker: Worker, size: MicroBatch) -> None:
    """A worker has measured its micro-batch size for iterations that may be cut short."""
    compared = f"{size.overhead:.0%} longer than {size.whole} at once, as measured"
    context.emit(
        NoteMicroBatch,
        f"{worker.title} works in micro-batches of {size.samples} samples: {compared}",
        rank=worker.index,
        samples=size.samples,
        whole=size.whole,
        overhead=size.overhead,
    )


def on_computed(context: Context, worker: Worker, computed: Computed) -> None:
    """A worker's update is ready."""
    if computed.iteration <= worker.done:
        return
    _observe_progress(context, worker, computed.iteration, computed.samples, None, finished=True)
    _name_quorum(context, worker, computed.iteration)


def on_partial_report(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration, including its computation."""
    _observe_progress(context, worker, report.iteration, report.samples, report.loss, finished=True)
    _name_quorum(context, worker, report.iteration)


def note_updates(context: Context, report: ServerReport) -> None:
    """A server reports which updates were dropped or missing; repetitions by other servers are ignored."""
    job = context.job
    late = [
        (iteration, rank) for iteration, rank in sorted(report.late) if iteration > job.updates.late_until.get(rank, -1)
    ]
    missing = [each for each in sorted(report.missing) if each[0] > job.updates.missing.get(each[1], -1)]
    if not late and not missing:
        return
    job.updates.late = dict(job.updates.late)
    for iteration, rank in late:
        job.updates.late[rank] = job.updates.late.get(rank, 0) + 1
        job.updates.late_until = {**job.updates.late_until, rank: iteration}
    job.updates.missing = {**job.updates.missing, **{rank: iteration for iteration, rank in missing}}
    dropped = ", ".join(f"w{rank}" for rank in sorted({rank for _, rank in late}))
    lacks = ", ".join(f"w{rank} in iteration {iteration}" for iteration, rank in missing)
    parts = [f"{len(late)} updates of {dropped} came when others had made their iterations"] if late else []
    parts += (
        [f"not all blocks have an update of {lacks}, which it left: each divides by its own samples"] if lacks else []
    )
    context.emit(NoteUpdates, "; ".join(parts), late=job.updates.late, missing=missing)


def close_partial(context: Context) -> None:
    """Iterations are complete: no more decisions about them."""
    job, policies = context.job, context.chosen
    if policies.partial_barrier is not None:
        policies.barrier_state = policies.partial_barrier.close(job.round.completed, policies.barrier_state)
    if policies.quorum_barrier is not None:
        policies.barrier_state = policies.quorum_barrier.close(job.round.completed, policies.barrier_state)
    if job.updates.quorums:
        job.updates.quorums = {
            number: ranks for number, ranks in job.updates.quorums.items() if number >= job.round.completed
        }


def _observe_progress(
    context: Context, worker: Worker, iteration: int, samples: int, loss: float | None, *, finished: bool = False
) -> None:
    job, policies = context.job, context.chosen
    if policies.partial_barrier is None or iteration < job.updates.apply_from:
        return
    processed = Processed(
        rank=worker.index,
        iteration=iteration,
        samples=samples,
        requests=finished or samples >= job.generation.shares[worker.index],
        total=job.batch,
        loss=loss,
    )
    policies.barrier_state, cut = policies.partial_barrier.observe(processed, policies.barrier_state)
    if cut is not None:
        _note_cut(context, cut)
        _issue_each(context, _not_done(context, cut.iteration), cut.reason)


def _name_quorum(context: Context, worker: Worker, iteration: int) -> None:
    job, policies = context.job, context.chosen
    if policies.quorum_barrier is None or iteration < job.updates.apply_from:
        return
    policies.barrier_state, quorum = policies.quorum_barrier.computed(worker.index, iteration, policies.barrier_state)
    if quorum is not None:
        late = _note_quorum(context, quorum)
        _issue_each(context, late, quorum.reason)
        job.sequence += 1
        for server in job.live_servers:
            ordering.issue_server_orders(context, server, quorum.reason)


def _note_cut(context: Context, cut: Cut) -> None:
    job = context.job
    job.updates.cut = cut.iteration if job.updates.cut is None else max(job.updates.cut, cut.iteration)
    context.emit(CutIteration, cut.reason, iteration=cut.iteration, processed=cut.processed, total=cut.total)


def _note_quorum(context: Context, quorum: Quorum) -> list[Worker]:
    """Workers that are not named need not report that iteration any more."""
    job = context.job
    job.updates.quorums[quorum.iteration] = quorum.ranks
    context.emit(NameQuorum, quorum.reason, iteration=quorum.iteration, ranks=quorum.ranks)
    late = [worker for worker in _not_done(context, quorum.iteration) if worker.index not in quorum.ranks]
    for worker in late:
        worker.skip_to = quorum.iteration + 1
        job.advance(worker, quorum.iteration)
    return late


def _not_done(context: Context, iteration: int) -> list[Worker]:
    job = context.job
    return [job.workers[rank] for rank in job.generation.roster if job.workers[rank].done < iteration]


def _issue_each(context: Context, workers: Iterable[Worker], reason: str) -> None:
    for worker in workers:
        ordering.issue(context, worker, reason)


LAST_CHECKPOINT_MS = 60_000
"""How long a job whose workers have reached the end waits for its servers to write the last checkpoint."""


def finish_if_all_have(context: Context) -> None:
    """The job has succeeded once every live worker has reached its end, and a checkpoint that
    is due there is complete.
    """
    job = context.job
    if job.state is not JobState.FINISHING or job.starts.at_work:
        return
    is_due = _last_checkpoint_is_due(context)
    if is_due and _last_checkpoint_has_time(context):
        return
    count = job.round.completed + 1
    done = context.mode.done_sentence(count)
    saved = (
        ""
        if job.end.model_saved
        else "; the final parameters were not saved: the process that should save them ended before"
    )
    kept = "; its final checkpoint is incomplete" if is_due else ""
    context.end_job(JobState.SUCCEEDED, f"{job.end.reason}; {done}{saved}{kept}")


def finish_without_checkpoint(context: Context) -> None:
    """The servers will not save the final parameters: stop waiting for them."""
    context.job.end.by_ms = context.now_ms
    finish_if_all_have(context)


def _last_checkpoint_is_due(context: Context) -> bool:
    """Whether the servers still have to save the final parameters; workers that hold them do so as they end."""
    job, checkpoint = context.job, context.spec.checkpoint
    if checkpoint is None or context.spec.workers_hold or not context.mode.keeps_versions:
        return False
    last = job.round.completed + 1
    return last > 0 and last % checkpoint.every == 0 and all(each.iteration < last for each in job.checkpoints.kept)


def _last_checkpoint_has_time(context: Context) -> bool:
    """Whether to wait longer for it; the first call starts the wait."""
    job = context.job
    if job.end.by_ms is None:
        job.end.by_ms = context.now_ms + LAST_CHECKPOINT_MS
        context.has_new_deadline = True
        awaited = f"the checkpoint of iteration {job.round.completed + 1}"
        context.emit(MoveJob, "all workers have reached the end", state=job.state, awaited=awaited)
    return context.now_ms < job.end.by_ms
