"""The iterations that a generation makes: reports lead to observations, complete iterations, shares and releases.

What is complete is shown once to the batching policy, the detector and the placement policy: in lockstep an iteration,
else a round of as many reports as there are workers.
"""

from collections.abc import Mapping

from msgspec import UNSET

from controlplane.core import (
    answering,
    drawing,
    filling,
    granting,
    moving,
    ordering,
    partial,
    placing,
    recovery,
    sharing,
)
from controlplane.core.choices import Observation
from controlplane.core.context import Context, flag_key
from controlplane.core.processes import Worker
from controlplane.core.state import Round
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.messages import Evaluation, IterationReport

WARM_UP_REPORTS = 2
"""The first iterations of a process, which enter no predictor and no flag."""

STEADY = 1.25
"""A rank's second iteration counts where no sample took longer than this many times as in its first, which had all that
is done once: then nothing of that is left."""

SMOOTHING = 0.2
"""Weight of the newest iteration in the smoothed iteration time."""


def on_report(context: Context, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration."""
    job, policies, iteration = context.job, context.chosen, report.iteration
    if (report.spoilt or job.flags.open) and not _take_loss(context, worker, report):
        return
    job.advance(worker, iteration)
    # A revoked grant may have been used before the worker received the revocation.
    if worker.watermark < iteration:
        worker.watermark = iteration
    worker.done_ms = context.now_ms
    worker.reports += 1
    worker.ceiling = report.ceiling
    if report.moving_s > 0.0:
        moving.note_pause(job, worker, report)
    mode = policies.mode
    if _is_measured(worker, report):
        mode.seen(job, iteration)[worker.index] = _observation(worker, report)
        sharing.note_draw(context, worker, report)
        if report.exchanges:
            mode.exchanges(job, iteration).extend(placing.transfers_of(worker, report))
    drawing.note_processed(context, worker, report)
    if policies.pilot is not None:
        job.piloted.samples += report.samples
    if policies.guard is not None:
        tally = job.guarded if context.spec.fill is None else job.guarded.of_iteration(iteration)
        tally.add(report, job.generation.shares.get(worker.index, 0))
    if not context.mode.owns_loop:
        job.attachment.note_end(iteration, report.position + report.samples)
        if report.noise_scale is not UNSET and context.spec.fill is not None:
            job.attachment.noise[worker.index] = report.noise_scale
    if report.unanswered or job.flags.unanswered:
        answering.on_report(context, worker, report)
    if policies.async_barrier is not None:
        if granting.on_arrival(context, worker, report):
            _count_round(context)
    elif policies.is_partial:
        partial.on_report(context, worker, report)
    complete(context)
    if not mode.keeps_versions and recovery.checkpoint_is_due(context):
        recovery.hold_for_checkpoint(context)


def _is_measured(worker: Worker, report: IterationReport) -> bool:
    """Whether a report is past its process' warm-up."""
    if report.samples <= 0 or worker.reports > WARM_UP_REPORTS or worker.rank is None:
        return report.samples > 0 and worker.reports > WARM_UP_REPORTS
    per_sample_s = report.processing_s / report.samples
    if worker.reports == 1:
        worker.rank.first_s = per_sample_s
    return worker.reports > 1 and 0.0 < per_sample_s <= STEADY * worker.rank.first_s


def _take_loss(context: Context, worker: Worker, report: IterationReport) -> bool:
    """A loss that is not a number ends the job, unless its spec skips such updates."""
    if not report.spoilt:
        if flag_key("loss", "worker", worker.index) in context.job.flags.open:
            context.close_flag(worker.index, "loss", f"the loss of {worker.title} is a number again")
        return True
    found = f"the loss of {worker.title} in iteration {report.iteration} is {report.spoilt}"
    if not context.mode.owns_loop:
        evidence = {"iteration": report.iteration}
        context.open_flag(worker.index, "loss", "transient", f"{found}: the script continues", evidence)
        return True
    if context.spec.on_nan == "skip":
        evidence = {"iteration": report.iteration}
        context.open_flag(worker.index, "loss", "transient", f"{found}: its update is left out", evidence)
        return True
    good = recovery.last_good(context.job)
    context.end_job(JobState.FAILED, f"{found}; {good}; {recovery.DIVERGED}")
    return False


def complete(context: Context) -> None:
    """Take in the iterations that every counting worker has now reported, and let the workers continue."""
    job = context.job
    if job.round.behind > 0 or not job.generation.roster or job.state in JOB_OVER:
        return
    reached = job.reached()
    if reached <= job.round.completed:
        job.recount()
        return
    if not context.mode.has_global_batch:
        job.round.completed = reached
        job.recount()
        return
    _measure(context, reached)
    changed = False
    observations: list[Observation] = []
    for iteration in sorted(number for number in job.round.observed if number <= reached):
        job.round.completed = iteration
        job.attachment.complete(iteration)
        seen = job.round.observed.pop(iteration)
        observations = [seen[rank] for rank in sorted(seen)]
        changed |= filling.review(context, observations)
        changed |= sharing.decide_shares(context, observations)
        transfers = job.round.transfers.pop(iteration, [])
        context.look(observations, transfers)
        placing.review(context, transfers)
    job.round.completed = reached
    job.attachment.complete(reached)
    job.recount()
    partial.close(context)
    drawing.close_data(context, observations)
    if job.state in JOB_OVER:
        return
    _release(context, changed=changed)


def on_evaluation(context: Context, evaluation: Evaluation) -> None:
    """A version of the parameters was scored: the target may be reached."""
    target = context.spec.stop.accuracy
    if target is None or evaluation.accuracy is None or evaluation.accuracy < target:
        return
    reached = f"accuracy {evaluation.accuracy:.4f} after iteration {evaluation.iteration}, asked for {target:g}"
    granting.stop_soon(context, reached)


def _count_round(context: Context) -> None:
    """Shares and flags are evaluated once per round, with each worker's latest report in it."""
    job, done = context.job, context.job.round
    done.reports += 1
    if done.reports < len(job.generation.roster):
        return
    job.round = Round(completed=done.completed, behind=done.behind)
    observations = [done.recent[rank] for rank in sorted(done.recent)]
    paces = [(job.generation.shares[rank], job.workers[rank].pace_s) for rank in job.generation.roster]
    job.pace.speed = sum(share / pace_s for share, pace_s in paces if pace_s > 0)
    sharing.decide_shares(context, observations)
    drawing.rebalance(context, observations)
    context.look(observations, done.recent_transfers)
    placing.review(context, done.recent_transfers)


def _release(context: Context, *, changed: bool) -> None:
    job = context.job
    every = context.chosen.batching.every_iteration and context.mode.grants_iterations
    lowest = min(job.workers[rank].watermark for rank in job.generation.roster)
    used_up = lowest - job.round.completed <= max(1, granting.lead(context) // 2)
    granted: Mapping[int, str] = granting.raise_watermarks(context) if used_up or every else {}
    if not (granted or changed or every):
        return
    if job.end.stop_at is not None and job.round.completed + 1 >= job.end.stop_at:
        return
    reason = f"iteration {job.round.completed} is complete"
    ordering.issue_all(context, reason, of_rank=granted)


def _measure(context: Context, reached: int) -> None:
    job = context.job
    if job.round.completed_ms and job.round.completed >= 0:
        took_s = (context.now_ms - job.round.completed_ms) / 1000 / (reached - job.round.completed)
        job.pace.iteration_s += (took_s - job.pace.iteration_s) * (SMOOTHING if job.pace.iteration_s else 1.0)
    job.round.completed_ms = context.now_ms


def _observation(worker: Worker, report: IterationReport) -> Observation:
    return Observation(
        rank=worker.index,
        iteration=report.iteration,
        samples=report.samples,
        compute_s=report.processing_s,
        communication_s=report.push_s + report.pull_s,
        waiting_s=report.waiting_s,
        cpu=report.cpu,
        memory=report.memory,
    )
