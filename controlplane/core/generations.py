"""The members of the job, and from which iteration: each change makes a new generation. And the iterations that a
generation makes.

Reports lead to observations, completed iterations, shares and releases. What is complete is shown once to the batching
policy, the detector and the placement policy: in lockstep an iteration, else a round of as many reports as there are
workers.
"""

import itertools
from collections.abc import Mapping

from controlplane.core import drawing, granting, moving, multiples, ordering, partial, placing, recovery, sharing
from controlplane.core.choices import ImpossibleShares, Observation, ShareRequest
from controlplane.core.commands import MoveJob, SetRoster
from controlplane.core.context import Context, being, flag_key, number_of
from controlplane.core.records import Worker
from controlplane.core.state import Generation, Hold, Job, Round
from controlplane.core.states import JOB_OVER, JobState, ProcessState
from controlplane.protocol.messages import Evaluation, IterationReport

NAMED = 8
"""How many of the processes that have not said hello are named."""

PATIENCE_MS = 5_000
"""How long a job that may begin with fewer workers waits for the others."""

HERE = frozenset({ProcessState.READY, ProcessState.UNREACHABLE})

WARM_UP_REPORTS = 2
"""The first iterations of a process, which enter no predictor and no flag."""

SMOOTHING = 0.2
"""Weight of the newest iteration in the smoothed iteration time."""


def begin_when_ready(context: Context) -> None:
    """Start a generation once every process has said hello, or enough have and the others had their time."""
    job, spec = context.job, context.spec
    missing = len(job.starts.starting) + len(job.starts.revivals)
    if missing and not _enough(context):
        more = missing - NAMED
        titles = itertools.islice(itertools.chain(job.starts.starting, job.starts.revivals), NAMED)
        named = ", ".join(titles) + (f" and {more} more" if more > 0 else "")
        context.emit(MoveJob, "its processes start", state=job.state, awaited=f"hello of {named}")
        return
    ready = [rank for rank, worker in sorted(job.workers.items()) if worker.state in HERE]
    if job.starts.is_rebuilding:
        _begin_again(context, ready)
        return
    if not recovery.choose_start(context, ready):
        return
    placing.place_first(context)
    missed = f"{len(ready)} of " if len(ready) < spec.workers else ""
    who = f"{missed}{number_of(spec.workers, 'worker')}{_and_servers(spec.servers)}"
    context.move_job(JobState.RUNNING, f"{who} {being(spec.workers + spec.servers)} ready")
    job.running_ms = context.now_ms
    if (last := context.mode.first_stop(spec)) is not None:
        job.end.stop_at = last
        job.end.reason = f"{spec.stop.iterations} iterations were asked for"
    _enlist(context, ready, job.round.completed + 1)
    begin_generation(context, ready, first_iteration=job.round.completed + 1, reason="the first roster")


def enough_at_ms(job: Job) -> int | None:
    """When the wait for processes missing at the start times out; None if no process is starting."""
    if job.starts.is_rebuilding:
        return job.starts.rebuild_ms + PATIENCE_MS
    assert job.spec is not None
    can_begin = job.state is JobState.STARTING and job.spec.elastic.minimum_workers is not None
    return job.since_ms + PATIENCE_MS if can_begin else None


def _enough(context: Context) -> bool:
    """All processes are checked only after the wait has timed out."""
    job = context.job
    at_ms = enough_at_ms(job)
    if at_ms is None or context.now_ms < at_ms:
        return False
    ready = sum(worker.state in HERE for worker in job.workers.values())
    servers_are_here = all(title[0] == "w" for title in itertools.chain(job.starts.starting, job.starts.revivals))
    return servers_are_here and ready >= (context.spec.elastic.minimum_workers or 1)


def _begin_again(context: Context, ready: list[int]) -> None:
    """After a rollback: with new servers, from the iteration that is next."""
    job, spec = context.job, context.spec
    job.starts.is_rebuilding = False
    job.placement.plans += 1
    job.placement.version = job.placement.plans
    del job.pauses[granting.rebuilding_cause(context)]
    # Too few workers were here, or too few for the limits: both are checked again for the present workers.
    job.pauses.pop("limits", None)
    least = spec.elastic.minimum_workers or 1
    if len(ready) >= least:
        job.pauses.pop("workers", None)
    first = job.round.completed + 1
    who = f"{number_of(len(ready), 'worker')}{_and_servers(len(job.live_servers))}"
    verb = "goes" if who == "1 worker" else "go"
    reason = f"{who} {verb} on with iteration {first}"
    if job.pauses or job.requests.choices:
        job.hold = Hold(sequence=job.sequence + 1)
    if not job.pauses:
        job.paused_ms += context.now_ms - job.since_ms
        context.move_job(JobState.RUNNING, reason, awaited=granting.BOUNDARY if job.requests.choices else "")
    _enlist(context, ready, first)
    begin_generation(context, ready, first_iteration=first, reason=reason)


def _and_servers(number: int) -> str:
    """Empty for a job without servers."""
    return f" and {number_of(number, 'server')}" if number else ""


def _enlist(context: Context, ranks: list[int], first: int) -> None:
    """These are members from ``first`` on, and need not report earlier iterations."""
    for rank in ranks:
        worker = context.job.workers[rank]
        worker.done = first - 1
        drawing.raise_to(worker, first - 1)
        context.close_flag(rank, "lost", f"w{rank} counts again from iteration {first} on")


def begin_generation(context: Context, ranks: list[int], *, first_iteration: int, reason: str) -> None:
    """From ``first_iteration`` on, ``ranks`` count: new shares, and orders for everyone."""
    job = context.job
    before = job.generation
    left = {rank: before.shares[rank] for rank in before.roster if rank not in ranks}
    for rank in set(ranks) - set(before.roster):
        job.workers[rank].from_iteration = first_iteration
    job.generation = Generation(number=before.number + 1, roster=ranks, first_iteration=first_iteration)
    job.recount()
    _resize(context, first_iteration)
    job.generation.shares = _even_split(job.batch, ranks) if ranks else {}
    context.emit(SetRoster, reason, generation=job.generation.number, first_iteration=first_iteration, ranks=ranks)
    if ranks and not drawing.begin_data(context, ranks):
        return
    sentence = _share_out(context, before, first_iteration) if ranks else reason
    granting.raise_watermarks(context)
    partial.begin(context, left)
    granting.begin_asynchronous(context)
    placing.place_generation(context)
    # Placement before orders: orders name a placement version that the worker must have. Sequence numbers of the
    # servers' orders come from the workers' ones, so those are made first and the servers' follow.
    for worker in [job.workers[rank] for rank in ranks]:
        ordering.issue_placement(context, worker, reason)
    ordering.issue_all(context, sentence)
    for server in job.live_servers:
        ordering.issue_server_orders(context, server, reason)
    if ranks and not job.generation.is_short:
        granting.lift(context, "policy", sentence)
        granting.lift(context, "limits", sentence)


def _share_out(context: Context, before: Generation, first_iteration: int) -> str:
    """Shares for the new roster, with the reason; where limits forbid any, or the policy fails, the job pauses."""
    request: ShareRequest = sharing.share_request(context, first_iteration)
    try:
        state, decision = context.chosen.batching.start(request, context.chosen.batching_state)
    except ImpossibleShares as error:
        return _keep_shares(context, before, "limits", str(error))
    except Exception as error:
        context.fault = error
        return _keep_shares(context, before, "policy", sharing.failure_sentence(context, error))
    context.chosen.batching_state = state
    decision = multiples.rounded(decision, request, multiples.of_ranks(context))
    sharing.record_decision(context, decision)
    sharing.take_shares(context, decision, first_iteration, announce=True)
    return decision.reason


def _keep_shares(context: Context, before: Generation, cause: granting.Cause, why: str) -> str:
    """Keep the earlier shares and pause the job; returns the reason."""
    job = context.job
    shares = {rank: before.shares.get(rank, 0) for rank in job.generation.roster}
    job.generation.shares, job.generation.share_from = shares, before.share_from
    job.generation.offsets = context.chosen.data.offsets(shares)
    job.generation.is_short = True
    job.samples.budget_width = 0
    reason = f"no shares for generation {job.generation.number}: {why}"
    granting.pause(context, cause, reason)
    return reason


def _resize(context: Context, first_iteration: int) -> None:
    """Where the global batch depends on the number of workers: later iterations take their samples from here on."""
    job, spec = context.job, context.spec
    size = len(job.generation.roster) * spec.usual_share
    if spec.elastic.global_batch == "keep" or size in (0, job.batch):
        return
    if context.mode.has_global_batch:
        job.samples.origin_position += (first_iteration - job.samples.origin_iteration) * job.width
        job.samples.origin_iteration = first_iteration
    job.samples.global_batch = size


def depart(context: Context, worker: Worker, why: str) -> None:
    """A counting worker is lost: the others, if any, continue without it in a new generation."""
    job = context.job
    forget(context, worker, why)
    left = [rank for rank in job.generation.roster if rank != worker.index]
    first = min((job.workers[rank].last_completed for rank in left), default=job.round.completed) + 1
    begin_generation(context, left, first_iteration=first, reason=f"{worker.title} {why}")


def forget(context: Context, worker: Worker, why: str) -> None:
    """Expect nothing more from a worker that counted until now; a generation without it follows."""
    job = context.job
    context.close_flags(f"{worker.title} {why}", rank=worker.index)
    if worker.state is ProcessState.LOST:
        context.open_flag(worker.index, "lost", "lasting", f"{worker.title} {why}", {"iteration": worker.done})
    for observed in (*job.round.observed.values(), job.round.recent):
        observed.pop(worker.index, None)
    drawing.drop_after(job, worker, worker.done)
    drawing.note_departure(context, worker)
    job.updates.passed.pop(worker.index, None)


def _even_split(total: int, ranks: list[int]) -> dict[int, int]:
    base, rest = divmod(total, len(ranks))
    return {rank: base + (position < rest) for position, rank in enumerate(ranks)}


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
    if worker.reports > WARM_UP_REPORTS and report.samples > 0:
        mode.seen(job, iteration)[worker.index] = _observation(worker, report)
        if report.exchanges:
            mode.exchanges(job, iteration).extend(placing.transfers_of(worker, report))
    drawing.note_processed(context, worker, report)
    if mode.is_asynchronous:
        if granting.on_arrival(context, worker, report):
            _count_round(context)
    elif policies.is_partial:
        partial.on_report(context, worker, report)
    complete(context)
    if not mode.keeps_versions and recovery.checkpoint_is_due(context):
        recovery.hold_for_checkpoint(context)


def _take_loss(context: Context, worker: Worker, report: IterationReport) -> bool:
    """A loss that is not a number ends the job, unless its spec skips such updates."""
    if not report.spoilt:
        if flag_key("loss", "worker", worker.index) in context.job.flags.open:
            context.close_flag(worker.index, "loss", f"the loss of {worker.title} is a number again")
        return True
    found = f"the loss of {worker.title} in iteration {report.iteration} is {report.spoilt}"
    if context.spec.attached:
        evidence = {"iteration": report.iteration}
        context.open_flag(worker.index, "loss", "transient", f"{found}: the script goes on", evidence)
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
    if context.mode.is_asynchronous:
        job.round.completed = reached
        job.recount()
        return
    _measure(context, reached)
    changed = False
    observations: list[Observation] = []
    for iteration in sorted(number for number in job.round.observed if number <= reached):
        job.round.completed = iteration
        seen = job.round.observed.pop(iteration)
        observations = [seen[rank] for rank in sorted(seen)]
        changed |= sharing.decide_shares(context, observations)
        transfers = job.round.transfers.pop(iteration, [])
        context.look(observations, transfers)
        placing.review(context, transfers)
    job.round.completed = reached
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
    every = context.chosen.batching.every_iteration
    lowest = min(job.workers[rank].watermark for rank in job.generation.roster)
    if context.spec.attached:
        every = False  # no worker waits for a share
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
