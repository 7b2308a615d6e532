"""Who counts, and from when: each change makes a new generation."""

from controlplane.core import asynchrony, ending, flags, learning, leases, partial, releases, standing
from controlplane.core.blocks import cut_blocks
from controlplane.core.choices import ShareRequest
from controlplane.core.commands import MoveJob, SetPlacement, SetRoster
from controlplane.core.handling import Handling
from controlplane.core.state import Worker
from controlplane.core.states import JobState, ProcessState


def begin_when_all_are_ready(handling: Handling) -> None:
    """Start the first generation once every process has said hello."""
    job, spec = handling.job, handling.spec
    missing = [process.title for process in job.live_processes if process.state is ProcessState.ORDERED]
    if missing:
        named = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        handling.give(MoveJob, "its processes start", state=job.state, awaited=f"hello of {named}")
        return
    _place(handling)
    handling.move_job(JobState.RUNNING, f"{spec.workers} workers and {spec.servers} servers are ready")
    job.running_ms = handling.now_ms
    if spec.stop.iterations is not None and handling.chosen.gate is None:
        job.stop_at = spec.stop.iterations
        job.stop_reason = f"{spec.stop.iterations} iterations were asked for"
    begin_generation(handling, sorted(job.workers), first_iteration=0, reason="the first roster")


def begin_generation(handling: Handling, ranks: list[int], *, first_iteration: int, reason: str) -> None:
    """From ``first_iteration`` on, ``ranks`` count: new shares, and orders for everyone."""
    job = handling.job
    job.generation += 1
    left = {rank: job.shares[rank] for rank in job.roster if rank not in ranks}
    for rank in set(ranks) - set(job.roster):
        job.workers[rank].from_iteration = first_iteration
    job.roster = ranks
    job.first_iteration = first_iteration
    standing.recount(job)
    job.shares = _even_split(handling.spec.global_batch, ranks)
    handling.give(SetRoster, reason, generation=job.generation, first_iteration=first_iteration, ranks=ranks)
    request: ShareRequest = releases.share_request(handling, first_iteration)
    try:
        state, decision = handling.chosen.batching.start(request, handling.chosen.batching_state)
    except ValueError as error:
        ending.end(handling, JobState.FAILED, f"no shares for generation {job.generation}: {error}")
        return
    handling.chosen.batching_state = state
    learning.record(handling, decision)
    releases.take_shares(handling, decision, first_iteration, tell=True)
    releases.raise_watermarks(handling)
    partial.begin(handling, left)
    asynchrony.begin(handling)
    # Placement before orders: orders name a placement version that the worker must have. Sequence numbers of the
    # servers' orders come from the workers' ones, so those are made first and the servers' follow.
    for worker in [job.workers[rank] for rank in ranks]:
        releases.issue_placement(handling, worker, reason)
    releases.issue_all(handling, decision.reason)
    for server in job.live_servers:
        releases.issue_server_orders(handling, server, reason)


def depart(handling: Handling, worker: Worker, why: str) -> None:
    """A counting worker is dead: the others go on without it, in a new generation."""
    job = handling.job
    flags.close_all(handling, f"{worker.title} {why}", rank=worker.index)
    flags.open_flag(handling, worker.index, "dead", "lasting", f"{worker.title} {why}", {"iteration": worker.done})
    for observed in (*job.observed.values(), job.recent):
        observed.pop(worker.index, None)
    leases.drop_after(job, worker, worker.done)
    job.passed.pop(worker.index, None)
    left = [rank for rank in job.roster if rank != worker.index]
    if not left:
        ending.end(handling, JobState.FAILED, f"{worker.title} {why}; no worker is left")
        return
    first = min(standing.stand(job.workers[rank]) for rank in left) + 1
    begin_generation(handling, left, first_iteration=first, reason=f"{worker.title} {why}")


def _place(handling: Handling) -> None:
    job = handling.job
    slices = cut_blocks(job.servers[0].tensor_sizes)
    job.blocks, reason = handling.chosen.placement.place(slices, sorted(job.servers))
    job.placement_version += 1
    handling.give(
        SetPlacement,
        reason,
        version=job.placement_version,
        policy=job.synchronization.placement.name,
        blocks=job.blocks,
    )


def _even_split(total: int, ranks: list[int]) -> dict[int, int]:
    base, rest = divmod(total, len(ranks))
    return {rank: base + (position < rest) for position, rank in enumerate(ranks)}
