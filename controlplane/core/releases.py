"""How far each worker may go, and with which share: the decisions that become orders.

Shares change by batching policy, watermarks by barrier policy; both go out as whole orders.
"""

from collections.abc import Iterable, Set
from typing import Any

from controlplane.core import ending, handout, learning, own_data
from controlplane.core.choices import Observation, Progress, ShareDecision, ShareRequest
from controlplane.core.commands import IssueOrders, IssuePlacement, IssueServerOrders, SetShares
from controlplane.core.handling import Handling
from controlplane.core.leases import raise_to
from controlplane.core.records import Server, Worker
from controlplane.core.standing import stand
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JobState, ProcessState
from controlplane.core.stepping import Stepping, stepping_of
from controlplane.protocol.base import MAX_SECONDS
from controlplane.protocol.optimizers import clips_by_norm
from controlplane.protocol.orders import Apply, Member, Orders, PeerAddress, ServerOrders

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
    total = job.batch
    highest = spec.limits.maximum if spec.limits.maximum is not None else total
    allowed = own_data.within(handling, dict.fromkeys(job.generation.roster, (spec.limits.minimum, highest)))
    limits = _within_memory(job, allowed)
    return ShareRequest(iteration=iteration, total=total, current=dict(job.generation.shares), limits=limits)


def _within_memory(job: Job, limits: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Narrower where a worker's memory ran short, if that is possible: whoever must do more does it in pieces."""
    narrower = {
        rank: (low, max(low, min(high, job.workers[rank].ceiling or high))) for rank, (low, high) in limits.items()
    }
    return narrower if sum(high for _, high in narrower.values()) >= job.batch else limits


def take_shares(handling: Handling, decision: ShareDecision, iteration: int, *, tell: bool) -> None:
    """Let ``decision`` hold from ``iteration`` on."""
    job = handling.job
    job.generation.shares = decision.shares
    handout.take_batch(handling, decision, iteration)
    job.generation.share_from = iteration
    own_data.look(handling)
    if tell:
        handling.give(
            SetShares,
            decision.reason,
            generation=job.generation.number,
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
    if job.generation.is_short:
        return False
    soon = batching.every_iteration or handling.chosen.partitioned is not None
    iteration = job.round.completed + (1 if soon else 2)
    request = share_request(handling, iteration)
    try:
        state, decision = batching.decide(request, observations, handling.chosen.batching_state)
    except Exception as error:
        job.generation.is_short = True
        handling.fault = error
        return False
    handling.chosen.batching_state = state
    learning.record(handling, decision)
    now = (job.generation.shares, job.generation.budget_s, job.generation.ceilings)
    changed = (decision.shares, decision.budget_s, decision.ceilings) != now
    if changed:
        take_shares(handling, decision, iteration, tell=True)
    return changed


def raise_watermarks(handling: Handling) -> dict[int, str]:
    """Let each counting worker go as far as a synchronous barrier allows; why, for each whose leave has grown."""
    job = handling.job
    if handling.chosen.gate is not None or job.hold.sequence is not None:
        return {}
    progress = Progress(
        done={rank: job.workers[rank].done for rank in job.generation.roster},
        first_iteration=job.generation.first_iteration,
        lead=lead(handling),
    )
    ends = [end - 1 for end in (job.end.stop_at, job.requests.join_at) if end is not None]
    last = min(ends, default=None)
    grown: dict[int, str] = {}
    for rank, release in handling.chosen.barrier.release(progress).items():
        mark = release.watermark if last is None else min(release.watermark, last)
        if handling.chosen.partitioned is not None:
            # A generation may begin behind the open iteration, but pieces go out once all have got so far.
            mark = min(mark, job.round.completed + 1)
        if mark > job.workers[rank].watermark:
            raise_to(job.workers[rank], mark)
            grown[rank] = release.reason
    handout.hand_out(handling, job.generation.roster)
    return grown


def lead(handling: Handling) -> int:
    """How many iterations ahead a synchronous barrier may grant; one, where samples go out with the leave."""
    return 1 if handling.chosen.partitioned is not None else lead_of(handling.job.pace.iteration_s)


def lead_of(iteration_s: float) -> int:
    """How many iterations of that length may be granted ahead; 0.0: it is not known."""
    if iteration_s <= 0.0:
        return FIRST_LEAD_ITERATIONS
    return max(1, min(LEAD_ITERATIONS, int(LEAD_S / iteration_s)))


def issue_all(handling: Handling, reason: str) -> None:
    """New orders for every counting worker."""
    for rank in handling.job.generation.roster:
        issue(handling, handling.job.workers[rank], reason)


def issue(handling: Handling, worker: Worker, reason: str) -> None:
    """New orders for one worker, with a new sequence."""
    job = handling.job
    job.sequence += 1
    free = handling.chosen.gate is not None
    worker.orders = Orders(
        incarnation=job.incarnation,
        generation=job.generation.number,
        sequence=job.sequence,
        **(_leased(handling, worker) if free else _shared(handling, worker)),
        global_batch=job.width,
        watermark=worker.watermark,
        placement_version=job.placement.version,
        stop_at=worker.stop_at if free else job.end.stop_at,
        evaluator=worker.index == job.generation.roster[0],
        held_s=min(MAX_SECONDS, (handling.now_ms - worker.done_ms) / 1000) if worker.done_ms else 0.0,
        skip_to=worker.skip_to,
        hold=job.hold.sequence is not None,
        cut=job.updates.cut,
        progress_s=_progress_s(handling),
        announce=handling.chosen.namer is not None,
        budget_s=job.generation.budget_s,
        ceiling=job.generation.ceilings.get(worker.index),
        **(_pieces(worker) if handling.chosen.partitioned is not None else {}),
        final=not free or not _others_at_work(job, worker),
        **_refill(job, worker),
        **(_kept(handling, worker) if handling.spec.workers_hold else {}),
        probes=job.placement.probes if worker.index == job.placement.prober else {},
        probe_round=job.placement.probe_round,
    )
    handling.give(IssueOrders, reason, rank=worker.index, instance=worker.instance, orders=worker.orders)


def _pieces(worker: Worker) -> dict[str, Any]:
    """Samples out of splits of its own."""
    return (
        {"pieces": worker.pieces.ranges, "pieces_of": worker.pieces.iteration} if worker.pieces.iteration >= 0 else {}
    )


def _refill(job: Job, worker: Worker) -> dict[str, Any]:
    """What is asked of a worker where servers were lost."""
    refill = job.refilling.current
    if refill is None or worker.index not in refill.asked:
        return {}
    fills = [block for block, rank in sorted(refill.fills.items()) if rank == worker.index and block in refill.lost]
    return {"refill": refill.number, "lost": refill.lost, "fills": fills}


def _kept(handling: Handling, worker: Worker) -> dict[str, Any]:
    """What concerns checkpoints where workers hold the parameters: who joins later gets them from the others."""
    job, keeper = handling.job, handling.job.workers[handling.job.generation.roster[0]]
    begins = job.checkpoints.restore is not None and worker.from_iteration == job.checkpoints.restore.iteration
    return {
        "restore": job.checkpoints.restore if begins else None,
        "keeper": keeper.instance if handling.spec.checkpoint is not None else None,
        "whole": job.checkpoints.whole if worker is keeper else None,
    }


def _others_at_work(job: Job, worker: Worker) -> bool:
    """Whether the parameters may still change when this worker has finished; asked of the evaluator alone."""
    return worker.index == job.generation.roster[0] and job.lives.at_work > (worker.state in AT_WORK)


def _shared(handling: Handling, worker: Worker) -> dict[str, Any]:
    """Samples of a synchronous iteration: a part of its global batch."""
    job = handling.job
    reaches = job.round.completed + 1 if handling.chosen.batching.every_iteration else worker.watermark
    return {
        "share": job.generation.shares[worker.index],
        "offset": job.generation.offsets[worker.index],
        "origin_iteration": job.samples.origin_iteration,
        "origin_position": job.samples.origin_position,
        "share_from": job.generation.share_from,
        "share_until": max(job.generation.share_from, reaches),
    }


def _leased(handling: Handling, worker: Worker) -> dict[str, Any]:
    """Samples that were handed out to this worker alone."""
    job, leases = handling.job, worker.leases
    first = leases[-1].first if leases else stand(worker) + 1
    return {
        "share": leases[-1].share if leases else job.generation.shares[worker.index],
        "offset": 0,
        "origin_iteration": first,
        "origin_position": leases[-1].position if leases else job.samples.cursor,
        "share_from": first,
        "share_until": max(first, worker.watermark),
        "ranges": list(leases),
    }


def _progress_s(handling: Handling) -> float | None:
    """How often a worker says how far it is: often enough within an iteration to be of use (ruling 17)."""
    cutter, iteration_s = handling.chosen.cutter, handling.job.pace.iteration_s
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
        version=job.placement.version,
        blocks=job.placement.blocks,
        servers=_addresses(job.live_servers),
        generation=job.generation.number,
        peers=_peers(handling),
        refills=job.refilling.by_block,
        again=handling.chosen.gate is None or job.round.completed + 1 < job.updates.apply_from,
    )


def _peers(handling: Handling) -> list[PeerAddress]:
    """Where the members of the present generation find each other, if they are to."""
    if not handling.spec.reduces:
        return []
    members = [handling.job.workers[rank] for rank in handling.job.generation.roster]
    return [PeerAddress(rank=worker.index, host=worker.host, port=worker.port) for worker in members]


def issue_server_orders(handling: Handling, server: Server, reason: str) -> None:
    """Send a server its blocks and who counts."""
    job = handling.job
    members = [
        Member(rank=rank, instance=job.workers[rank].instance, from_iteration=job.workers[rank].from_iteration)
        for rank in job.generation.roster
        if not (
            job.refilling.by_block and job.workers[rank].state is ProcessState.FINISHED
        )  # it cannot push anything again
    ]
    lost = set(job.refilling.current.lost) if job.refilling.current is not None else set()
    change = job.placement.change
    moves = change.moves if change is not None else {}
    sends = {index: each.destination for index, each in moves.items() if each.source == server.index}
    handling.give(
        IssueServerOrders,
        reason,
        index=server.index,
        instance=server.instance,
        receivers=_addresses(_spoken_to(handling, server, set(sends.values()))),
        orders=ServerOrders(
            incarnation=job.incarnation,
            generation=job.generation.number,
            sequence=job.sequence,
            members=members,
            placement_version=job.placement.version,
            blocks=[block for block in job.placement.blocks if block.server == server.index],
            next_placement=change.version if change is not None else 0,
            sends=sends,
            freeze_at=change.freeze_at if change is not None else 0,
            aggregation=handling.spec.weighing,
            apply=_apply(handling),
            apply_from=job.updates.apply_from,
            skip_to=job.updates.skip_to,
            awaits=[b.index for b in job.placement.blocks if b.server == server.index and b.index in lost],
            beside=[each.instance for each in job.live_servers] if handling.spec.checkpoint is not None else [],
            restore=job.checkpoints.restore,
            save_at=job.checkpoints.save_at,
            whole=job.checkpoints.whole if server.index == min(each.index for each in job.live_servers) else None,
            scale=_stepping(handling).scale,
            gather=_stepping(handling).gather,
            quorums=dict(job.updates.quorums),
            named_from=job.updates.apply_from if handling.chosen.namer is not None else None,
            passed=dict(job.updates.passed),
        ),
    )


def _spoken_to(handling: Handling, server: Server, receivers: Set[int]) -> list[Server]:
    """The servers that this one hands blocks to; all others, where they must agree on the norm of a gradient."""
    job, spec = handling.job, handling.spec
    if spec.server_mode == "stateful" and clips_by_norm(spec.applied):
        return [other for other in job.live_servers if other is not server]
    return [job.servers[index] for index in sorted(receivers)]


def _addresses(servers: Iterable[Server]) -> dict[int, tuple[str, str, int]]:
    """Those that have said where they listen."""
    return {server.index: (server.instance, server.host, server.port) for server in servers if server.port}


def _apply(handling: Handling) -> Apply:
    gate = handling.chosen.gate
    if gate is None:
        return "quorum"
    return "release" if gate.holds_updates and handling.job.end.stop_at is None else "arrival"


def _stepping(handling: Handling) -> Stepping:
    """What one update does where it is applied by itself."""
    gate, job = handling.chosen.gate, handling.job
    if gate is None:
        return Stepping(scale=1.0, gather=1)
    return stepping_of(
        handling.spec, gate.step_scale, len(job.generation.roster), is_ending=job.end.stop_at is not None
    )


def stop_at(handling: Handling, iteration: int, reason: str) -> None:
    """Let the job end before ``iteration``, which nobody has leave to start yet."""
    job = handling.job
    if job.end.stop_at is not None and job.end.stop_at <= iteration:
        return
    job.end.stop_at = iteration
    job.end.reason = reason
    issue_all(handling, f"stop before iteration {iteration}: {reason}")


def stop_soon(handling: Handling, reason: str) -> None:
    """Let the job end as early as all can agree on: after the last iteration that somebody has leave for."""
    job = handling.job
    if handling.chosen.gate is not None:
        stop_each(handling, reason, soon=True)
        return
    stop_at(handling, max(job.workers[rank].watermark for rank in job.generation.roster) + 1, reason)


def stop_each(handling: Handling, reason: str, *, soon: bool) -> None:
    """Let each worker of an asynchronous job end: ``soon``, at its next boundary, or else with its leave used up.

    Those who wait end at once in both cases: with nobody to come, they would wait for ever.
    """
    job = handling.job
    if job.end.stop_at is not None:
        return
    job.end.reason = reason
    job.requests.choices = {}
    if job.state is not JobState.PAUSED:
        job.release_hold()
    for rank in job.generation.roster:
        worker = job.workers[rank]
        worker.stop_at = (stand(worker) if soon else worker.watermark) + 1
    job.end.stop_at = max(job.workers[rank].watermark for rank in job.generation.roster) + 1
    told = f"stop {'at the next boundary' if soon else 'after what was handed out'}: {reason}"
    gate = handling.chosen.gate
    if gate is not None and gate.holds_updates:
        # Nobody is let pass any more. As a generation of its own, so that the last pull is answered after that.
        job.generation.number += 1
        issue_all(handling, told)
        for server in job.live_servers:
            issue_server_orders(handling, server, told)
    else:
        issue_all(handling, told)


def _let_finish(handling: Handling) -> None:
    """Only one worker is left: if it is to save the final parameters, they will not change any more."""
    evaluator = handling.job.workers[handling.job.generation.roster[0]]
    if evaluator.state in AT_WORK:
        issue(handling, evaluator, "nobody else pushes any more")


def worker_finished(handling: Handling, worker: Worker) -> None:
    """One worker has reached the job's end."""
    job = handling.job
    if job.state is JobState.RUNNING:
        handling.move_job(JobState.FINISHING, job.end.reason, awaited="every worker's end and the saved parameters")
        _leave_out_latecomers(handling)
    if handling.chosen.gate is not None and job.lives.at_work == 1:
        _let_finish(handling)
    ending.finish_if_all_have(handling)


def _leave_out_latecomers(handling: Handling) -> None:
    """Who has not come to count by now will not: the job ends without them."""
    job = handling.job
    for title in [title for title in job.lives.revivals if title[0] == "w"]:
        del job.lives.revivals[title]
    for worker in job.live_workers:
        if not job.counts(worker.index):
            handling.move_process(worker, ProcessState.STOPPED, "the job ends before it could count")
            handling.stop_process(worker, "the job ends before it could count")
