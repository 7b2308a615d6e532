"""How far each worker may go, and with which share: the decisions that become orders.

Shares change by batching policy, watermarks by barrier policy; both go out as whole orders.
"""

from typing import Any

from controlplane.core import ending, learning
from controlplane.core.choices import Observation, Progress, ShareDecision, ShareRequest
from controlplane.core.commands import IssueOrders, IssuePlacement, IssueServerOrders, SetShares
from controlplane.core.handling import Handling
from controlplane.core.leases import raise_to
from controlplane.core.standing import stand
from controlplane.core.state import Server, Worker
from controlplane.core.states import JobState
from controlplane.protocol.orders import Apply, Member, Orders, ServerOrders

LEAD_ITERATIONS = 50
"""How far ahead a synchronous barrier grants at most."""

FIRST_LEAD_ITERATIONS = 4
"""How far ahead it grants while the length of an iteration is not known."""

PROGRESS_REPORTS = 8
"""How many words of progress an iteration should have at least, where they are asked for."""

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
            policy=job.synchronization.batching.name,
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
    """Let each counting worker go as far as a synchronous barrier allows; why, for each whose leave has grown."""
    job = handling.job
    if handling.chosen.gate is not None or job.hold_sequence is not None:
        return {}
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
            raise_to(job.workers[rank], mark)
            grown[rank] = release.reason
    return grown


def lead(handling: Handling) -> int:
    """How many iterations ahead a synchronous barrier may grant."""
    return lead_of(handling.job.iteration_s)


def lead_of(iteration_s: float) -> int:
    """How many iterations of that length may be granted ahead; 0.0: it is not known."""
    if iteration_s <= 0.0:
        return FIRST_LEAD_ITERATIONS
    return max(1, min(LEAD_ITERATIONS, int(LEAD_S / iteration_s)))


def issue_all(handling: Handling, reason: str) -> None:
    """New orders for every counting worker."""
    for rank in handling.job.roster:
        issue(handling, handling.job.workers[rank], reason)


def issue(handling: Handling, worker: Worker, reason: str) -> None:
    """New orders for one worker, with a new sequence."""
    job = handling.job
    job.sequence += 1
    free = handling.chosen.gate is not None
    worker.orders = Orders(
        incarnation=job.incarnation,
        generation=job.generation,
        sequence=job.sequence,
        **(_leased(handling, worker) if free else _shared(handling, worker)),
        global_batch=handling.spec.global_batch,
        watermark=worker.watermark,
        placement_version=job.placement_version,
        stop_at=worker.stop_at if free else job.stop_at,
        evaluator=worker.index == job.roster[0],
        durable=worker.heard,
        held_s=(handling.now_ms - worker.done_ms) / 1000 if worker.done_ms else 0.0,
        skip_to=worker.skip_to,
        hold=job.hold_sequence is not None,
        cut=job.cut,
        progress_s=_progress_s(handling),
        announce=handling.chosen.namer is not None,
    )
    handling.give(IssueOrders, reason, rank=worker.index, instance=worker.instance, orders=worker.orders)


def _shared(handling: Handling, worker: Worker) -> dict[str, Any]:
    """Samples of a synchronous iteration: a part of its global batch."""
    job = handling.job
    reaches = job.completed + 1 if handling.chosen.batching.every_iteration else worker.watermark
    return {
        "share": job.shares[worker.index],
        "offset": job.offsets[worker.index],
        "origin_iteration": job.origin_iteration,
        "origin_position": job.origin_position,
        "share_from": job.share_from,
        "share_until": max(job.share_from, reaches),
    }


def _leased(handling: Handling, worker: Worker) -> dict[str, Any]:
    """Samples that were handed out to this worker alone."""
    job, leases = handling.job, worker.leases
    first = leases[-1].first if leases else stand(worker) + 1
    return {
        "share": leases[-1].share if leases else job.shares[worker.index],
        "offset": 0,
        "origin_iteration": first,
        "origin_position": leases[-1].position if leases else job.cursor,
        "share_from": first,
        "share_until": max(first, worker.watermark),
        "ranges": list(leases),
    }


def _progress_s(handling: Handling) -> float | None:
    """How often a worker says how far it is: often enough within an iteration to be of use (ruling 17)."""
    cutter, iteration_s = handling.chosen.cutter, handling.job.iteration_s
    if cutter is None:
        return None
    return min(cutter.report_s, iteration_s / PROGRESS_REPORTS) if iteration_s > 0 else cutter.report_s


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
            apply=_apply(handling),
            apply_from=job.apply_from,
            quorums=dict(job.quorums),
            named_from=job.apply_from if handling.chosen.namer is not None else None,
            passed=dict(job.passed),
        ),
    )


def _apply(handling: Handling) -> Apply:
    gate = handling.chosen.gate
    if gate is None:
        return "quorum"
    return "release" if gate.holds_updates else "arrival"


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
    if handling.chosen.gate is not None:
        stop_each(handling, reason, soon=True)
        return
    stop_at(handling, max(job.workers[rank].watermark for rank in job.roster) + 1, reason)


def stop_each(handling: Handling, reason: str, *, soon: bool) -> None:
    """Let each worker of an asynchronous job end: ``soon``, at its next boundary, or else with its leave used up.

    Those who wait end at once in both cases: with nobody to come, they would wait for ever.
    """
    job = handling.job
    if job.stop_at is not None:
        return
    job.stop_reason = reason
    job.pending = {}
    if job.state is not JobState.PAUSED:
        job.hold_sequence = None
    for rank in job.roster:
        worker = job.workers[rank]
        worker.stop_at = (stand(worker) if soon else worker.watermark) + 1
    job.stop_at = max(job.workers[rank].watermark for rank in job.roster) + 1
    issue_all(handling, f"stop {'at the next boundary' if soon else 'after what was handed out'}: {reason}")


def worker_finished(handling: Handling, worker: Worker) -> None:
    """One worker has reached the job's end."""
    job = handling.job
    if job.state is JobState.RUNNING:
        handling.move_job(JobState.FINISHING, job.stop_reason, awaited="every worker's end and the saved parameters")
    ending.finish_if_all_have(handling)
