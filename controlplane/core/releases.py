"""How far each worker may go, and with which share: the decisions that become orders.

Shares change by batching policy, watermarks by barrier policy; both go out as whole orders.
"""

from controlplane.core import ending, learning
from controlplane.core.choices import Observation, Progress, ShareDecision, ShareRequest
from controlplane.core.commands import IssueOrders, IssuePlacement, IssueServerOrders, SetShares
from controlplane.core.handling import Handling
from controlplane.core.state import Server, Worker
from controlplane.core.states import JobState
from controlplane.protocol.orders import Member, Orders, ServerOrders

LEAD_ITERATIONS = 50
"""How far ahead a synchronous barrier grants at most."""

FIRST_LEAD_ITERATIONS = 4
"""How far ahead it grants while the length of an iteration is not known."""

LEAD_S = 15.0
"""How much time a lead should cover: with it, workers outlast a restart of the control plane."""


def share_request(handling: Handling, iteration: int) -> ShareRequest:
    """What a batching policy has to divide at ``iteration``."""
    job, spec = handling.job, handling.spec
    total = spec.global_batch
    highest = spec.limits.maximum if spec.limits.maximum is not None else total
    limits = dict.fromkeys(job.roster, (spec.limits.minimum, highest))
    return ShareRequest(iteration=iteration, total=total, current=dict(job.shares), limits=limits)


def take_shares(handling: Handling, decision: ShareDecision, iteration: int, *, tell: bool) -> None:
    """Let ``decision`` hold from ``iteration`` on."""
    job = handling.job
    job.shares = decision.shares
    job.offsets = handling.chosen.data.offsets(decision.shares)
    job.share_from = iteration
    if tell:
        handling.give(
            SetShares,
            decision.reason,
            generation=job.generation,
            iteration=iteration,
            policy=handling.spec.synchronization.batching.name,
            shares=decision.shares,
            speeds=decision.speeds,
            predicted_s=decision.predicted_s,
            budget_s=decision.budget_s,
            ceilings=decision.ceilings,
        )


def decide_shares(handling: Handling, observations: list[Observation]) -> bool:
    """Decide the shares of the iteration after the completed one; True if they changed."""
    job, batching = handling.job, handling.chosen.batching
    iteration = job.completed + (1 if batching.every_iteration else 2)
    request = share_request(handling, iteration)
    handling.chosen.batching_state, decision = batching.decide(request, observations, handling.chosen.batching_state)
    learning.record(handling, decision)
    changed = decision.shares != job.shares
    if changed:
        take_shares(handling, decision, iteration, tell=True)
    return changed


def raise_watermarks(handling: Handling) -> dict[int, str]:
    """Let each counting worker go as far as the barrier allows; the reason for each whose leave has grown."""
    job = handling.job
    progress = Progress(
        done={rank: job.workers[rank].done for rank in job.roster},
        first_iteration=job.first_iteration,
        lead=lead(handling),
    )
    last = job.stop_at - 1 if job.stop_at is not None else None
    grown: dict[int, str] = {}
    for rank, release in handling.chosen.barrier.release(progress).items():
        mark = release.watermark if last is None else min(release.watermark, last)
        if mark > job.workers[rank].watermark:
            job.workers[rank].watermark = mark
            grown[rank] = release.reason
    return grown


def lead(handling: Handling) -> int:
    """How many iterations ahead a synchronous barrier may grant."""
    if handling.job.iteration_s <= 0.0:
        return FIRST_LEAD_ITERATIONS
    return max(1, min(LEAD_ITERATIONS, int(LEAD_S / handling.job.iteration_s)))


def issue_all(handling: Handling, reason: str) -> None:
    """New orders for every counting worker."""
    for rank in handling.job.roster:
        issue(handling, handling.job.workers[rank], reason)


def issue(handling: Handling, worker: Worker, reason: str) -> None:
    """New orders for one worker, with a new sequence."""
    job = handling.job
    job.sequence += 1
    if handling.chosen.batching.every_iteration:
        share_until = max(job.share_from, job.completed + 1)
    else:
        share_until = max(job.share_from, worker.watermark)
    worker.orders = Orders(
        incarnation=job.incarnation,
        generation=job.generation,
        sequence=job.sequence,
        share=job.shares[worker.index],
        offset=job.offsets[worker.index],
        global_batch=handling.spec.global_batch,
        origin_iteration=job.origin_iteration,
        origin_position=job.origin_position,
        share_from=job.share_from,
        share_until=share_until,
        watermark=worker.watermark,
        placement_version=job.placement_version,
        stop_at=job.stop_at,
        evaluator=worker.index == job.roster[0],
        durable=worker.heard,
        held_s=(handling.now_ms - worker.done_ms) / 1000 if worker.done_ms else 0.0,
    )
    handling.give(IssueOrders, reason, rank=worker.index, instance=worker.instance, orders=worker.orders)


def issue_placement(handling: Handling, worker: Worker, reason: str) -> None:
    """Send a worker the placement and where the servers are."""
    job = handling.job
    handling.give(
        IssuePlacement,
        reason,
        rank=worker.index,
        instance=worker.instance,
        incarnation=job.incarnation,
        version=job.placement_version,
        blocks=job.blocks,
        servers={server.index: (server.instance, server.host, server.port) for server in job.live_servers},
    )


def issue_server_orders(handling: Handling, server: Server, reason: str) -> None:
    """Send a server its blocks and who counts."""
    job = handling.job
    members = [
        Member(rank=rank, instance=job.workers[rank].instance, from_iteration=job.workers[rank].from_iteration)
        for rank in job.roster
    ]
    handling.give(
        IssueServerOrders,
        reason,
        index=server.index,
        instance=server.instance,
        orders=ServerOrders(
            incarnation=job.incarnation,
            generation=job.generation,
            sequence=job.sequence,
            members=members,
            placement_version=job.placement_version,
            blocks=[block for block in job.blocks if block.server == server.index],
            durable=server.heard,
        ),
    )


def stop_at(handling: Handling, iteration: int, reason: str) -> None:
    """Let the job end before ``iteration``, which nobody has leave to start yet."""
    job = handling.job
    if job.stop_at is not None and job.stop_at <= iteration:
        return
    job.stop_at = iteration
    job.stop_reason = reason
    issue_all(handling, f"stop before iteration {iteration}: {reason}")


def stop_soon(handling: Handling, reason: str) -> None:
    """Let the job end as early as all can agree on: after the last iteration that somebody has leave for."""
    job = handling.job
    stop_at(handling, max(job.workers[rank].watermark for rank in job.roster) + 1, reason)


def worker_finished(handling: Handling, worker: Worker) -> None:
    """One worker has reached the job's end."""
    job = handling.job
    if job.state is JobState.RUNNING:
        handling.move_job(JobState.FINISHING, job.stop_reason, awaited="every worker's end and the saved parameters")
    ending.finish_if_all_have(handling)
