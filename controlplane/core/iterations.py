"""What reports of iterations lead to: observations, completed iterations, shares and releases."""

from controlplane.core import (
    asynchrony,
    changes,
    checkpoints,
    ending,
    flags,
    handout,
    partial,
    placing,
    releases,
    standing,
    trials,
)
from controlplane.core.choices import Observation
from controlplane.core.handling import Handling
from controlplane.core.records import Worker
from controlplane.core.states import JOB_OVER, JobState
from controlplane.protocol.messages import Evaluation, IterationReport

WARM_UP_REPORTS = 2
"""The first iterations of a process, which enter no predictor and no flag."""

SMOOTHING = 0.2
"""Weight of the newest iteration in the smoothed iteration time."""


def on_report(handling: Handling, worker: Worker, report: IterationReport) -> None:
    """A worker has finished an iteration."""
    job, policies, iteration = handling.job, handling.chosen, report.iteration
    if not _take_loss(handling, worker, report):
        return
    standing.advance(job, worker, iteration)
    # Leave that was taken back may have been used before the worker heard of it.
    if worker.watermark < iteration:
        worker.watermark = iteration
    worker.done_ms = handling.now_ms
    worker.reports += 1
    worker.ceiling = report.ceiling
    if report.moving_s > 0.0:
        trials.note_pause(job, worker, report)
    free = policies.gate is not None
    if worker.reports > WARM_UP_REPORTS and report.samples > 0:
        seen = job.round.recent if free else job.round.observed.setdefault(iteration, {})
        seen[worker.index] = _observation(worker, report)
        if report.exchanges:
            transfers = job.round.recent_transfers if free else job.round.transfers.setdefault(iteration, [])
            transfers += placing.transfers_of(worker, report)
    handout.on_report(handling, worker, report)
    if free:
        asynchrony.on_report(handling, worker, report)
    elif policies.is_partial:
        partial.on_report(handling, worker, report)
    complete(handling)
    if free and checkpoints.is_due(handling):
        checkpoints.hold_for_one(handling)
    changes.settle(handling)


def _take_loss(handling: Handling, worker: Worker, report: IterationReport) -> bool:
    """A loss that is no number ends the job, unless its spec lets such updates be left out."""
    if not report.spoilt:
        if handling.job.flags.open:
            flags.close_flag(handling, worker.index, "loss", f"the loss of {worker.title} is a number again")
        return True
    found = f"the loss of {worker.title} in iteration {report.iteration} is {report.spoilt}"
    if handling.spec.on_nan == "skip":
        evidence = {"iteration": report.iteration}
        flags.open_flag(handling, worker.index, "loss", "transient", f"{found}: its update is left out", evidence)
        return True
    good = checkpoints.last_good(handling.job)
    ending.end(handling, JobState.FAILED, f"{found}; {good}; try a smaller learning rate")
    return False


def complete(handling: Handling) -> None:
    """Take in the iterations that every counting worker has now reported, and let the workers go on."""
    job = handling.job
    if not job.generation.roster or job.round.behind > 0 or job.state in JOB_OVER:
        return
    reached = standing.reached(job)
    if reached <= job.round.completed:
        standing.recount(job)
        return
    if handling.chosen.gate is not None:
        job.round.completed = reached
        standing.recount(job)
        return
    _measure(handling, reached)
    changed = False
    observations: list[Observation] = []
    for iteration in sorted(number for number in job.round.observed if number <= reached):
        job.round.completed = iteration
        seen = job.round.observed.pop(iteration)
        observations = [seen[rank] for rank in sorted(seen)]
        changed |= releases.decide_shares(handling, observations)
        transfers = job.round.transfers.pop(iteration, [])
        flags.look(handling, observations, transfers)
        placing.review(handling, transfers)
    job.round.completed = reached
    standing.recount(job)
    partial.close(handling)
    handout.close(handling, observations)
    if job.state in JOB_OVER:
        return
    _release(handling, changed=changed)


def on_evaluation(handling: Handling, evaluation: Evaluation) -> None:
    """A version of the parameters was scored: the target may be reached."""
    target = handling.spec.stop.accuracy
    if target is None or evaluation.accuracy is None or evaluation.accuracy < target:
        return
    reached = f"accuracy {evaluation.accuracy:.4f} after iteration {evaluation.iteration}, asked for {target:g}"
    releases.stop_soon(handling, reached)


def _release(handling: Handling, *, changed: bool) -> None:
    job = handling.job
    every = handling.chosen.batching.every_iteration
    lowest = min(job.workers[rank].watermark for rank in job.generation.roster)
    used_up = lowest - job.round.completed <= max(1, releases.lead(handling) // 2)
    leave = releases.raise_watermarks(handling) if used_up or every else {}
    if not (leave or changed or every):
        return
    if job.end.stop_at is not None and job.round.completed + 1 >= job.end.stop_at:
        return
    reason = f"iteration {job.round.completed} is complete"
    for rank in job.generation.roster:
        releases.issue(handling, job.workers[rank], leave.get(rank, reason))


def _measure(handling: Handling, reached: int) -> None:
    job = handling.job
    if job.round.completed_ms and job.round.completed >= 0:
        took_s = (handling.now_ms - job.round.completed_ms) / 1000 / (reached - job.round.completed)
        job.pace.iteration_s += (took_s - job.pace.iteration_s) * (SMOOTHING if job.pace.iteration_s else 1.0)
    job.round.completed_ms = handling.now_ms


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
