"""The members of the job, and from which iteration: each change makes a new generation, with its own shares."""

from controlplane.core import drawing, granting, ordering, partial, sharing
from controlplane.core.choices import ImpossibleShares, ShareRequest
from controlplane.core.commands import SetRoster
from controlplane.core.context import Context
from controlplane.core.processes import ProcessState, Worker
from controlplane.core.state import Generation


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
    if context.spec.reduces and context.mode.owns_loop:
        job.placement.renew()  # without servers it lists the members and their addresses
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
    decision = sharing.in_multiples(context, decision, request)
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
