"""Orders: everything that a worker may do, or a server should do, in one message that replaces the one before.

This module only formats decisions of other modules.
"""

from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Any, Final

from controlplane.core.commands import IssueOrders, IssuePlacement, IssueServerOrders
from controlplane.core.context import Context
from controlplane.core.records import Refill
from controlplane.core.state import Job
from controlplane.core.states import ProcessState, Server, Worker
from controlplane.protocol.base import MAX_SECONDS
from controlplane.protocol.optimizers import clips_by_norm
from controlplane.protocol.orders import Member, Orders, PeerAddress, ServerOrders

NO_OTHER: Final[Mapping[int, str]] = MappingProxyType({})

PROGRESS_REPORTS = 8
"""Least number of progress reports per iteration, where they are requested."""


def issue_all(context: Context, reason: str, *, of_rank: Mapping[int, str] = NO_OTHER) -> None:
    """Issue new orders to every counting worker; ``of_rank`` overrides the reason for some ranks."""
    common = _common(context)
    for worker in context.job.counting:
        _issue(context, worker, of_rank.get(worker.index, reason), common)


def issue(context: Context, worker: Worker, reason: str) -> None:
    """Issue new orders to one worker, with a new sequence."""
    _issue(context, worker, reason, _common(context))


def _common(context: Context) -> dict[str, Any]:
    """The common part of all workers' orders: built once, since a decision may go to thousands."""
    job, policies = context.job, context.chosen
    return {
        "incarnation": job.incarnation,
        "generation": job.generation.number,
        "global_batch": job.width,
        "placement_version": job.placement.version,
        "hold": job.hold.sequence is not None,
        "cut": job.updates.cut,
        "progress_s": _progress_s(context),
        "announce": policies.quorum_barrier is not None,
        "budget_s": job.generation.budget_s,
        "probe_round": job.placement.probe_round,
        "sampling": policies.peer_barrier.sampling(context.spec.seed) if policies.peer_barrier is not None else None,
        **({} if policies.mode.owns_loop else _attached(job)),
    }


def _issue(context: Context, worker: Worker, reason: str, common: Mapping[str, Any]) -> None:
    job, policies = context.job, context.chosen
    mode, spec = policies.mode, context.spec
    job.sequence += 1
    own = mode.samples(job, worker, every_iteration=policies.batching.every_iteration and mode.grants_iterations)
    if policies.partitioned is not None:
        own |= _pieces(worker)
    if job.refilling.current is not None:
        own |= _refill(job.refilling.current, worker)
    if spec.workers_hold:
        own |= _kept(context, worker)
    if worker.index == job.placement.prober:
        own["probes"] = job.placement.probes
    worker.orders = Orders(
        sequence=job.sequence,
        watermark=worker.watermark,
        stop_at=mode.stop_of(job, worker),
        evaluator=worker.index == job.generation.roster[0],
        held_s=min(MAX_SECONDS, (context.now_ms - worker.done_ms) / 1000) if worker.done_ms else 0.0,
        skip_to=worker.skip_to,
        ceiling=job.generation.ceilings.get(worker.index),
        final=mode.is_final(job, worker),
        **common,
        **own,
    )
    context.emit(IssueOrders, reason, rank=worker.index, instance=worker.instance, orders=worker.orders)


def _pieces(worker: Worker) -> dict[str, Any]:
    """Samples from the worker's own splits."""
    return (
        {"pieces": worker.pieces.ranges, "pieces_of": worker.pieces.iteration} if worker.pieces.iteration >= 0 else {}
    )


def _attached(job: Job) -> dict[str, Any]:
    """Attached ranks get the shares of all ranks, and never wait for a share."""
    shares = [job.generation.shares[rank] for rank in job.generation.roster]
    common = {"shares": shares, "shares_version": job.attachment.version, "decision_timeout_s": 0.0}
    common["begins"] = job.attachment.begins.get(job.generation.share_from)
    if job.spec is not None and job.spec.fill is not None:
        common |= {"fill_batch": job.attachment.fill_batch, "fill_rule": job.spec.fill.learning_rate}
    return common


def _refill(refill: Refill, worker: Worker) -> dict[str, Any]:
    """Blocks that a worker must send after servers were lost."""
    if worker.index not in refill.reporting:
        return {}
    fills = [block for block, rank in sorted(refill.fills.items()) if rank == worker.index and block in refill.lost]
    return {"refill": refill.number, "lost": refill.lost, "fills": fills}


def _kept(context: Context, worker: Worker) -> dict[str, Any]:
    """Orders about checkpoints if workers hold the parameters; late workers get them from the others."""
    job, keeper = context.job, context.job.workers[context.job.generation.roster[0]]
    begins = job.checkpoints.restore is not None and worker.from_iteration == job.checkpoints.restore.iteration
    return {
        "restore": job.checkpoints.restore if begins else None,
        "keeper": keeper.instance if context.spec.checkpoint is not None else None,
        "whole": job.checkpoints.whole if worker is keeper else None,
    }


def _progress_s(context: Context) -> float | None:
    """How often a worker reports its progress: often enough within an iteration to be useful (ruling 17)."""
    barrier, iteration_s = context.chosen.partial_barrier, context.job.pace.iteration_s
    if barrier is None:
        return None
    return min(barrier.report_s, iteration_s / PROGRESS_REPORTS) if iteration_s > 0 else barrier.report_s


def issue_placement(context: Context, worker: Worker, reason: str) -> None:
    """Send a worker the placement and the servers' addresses; attached ranks do not need them."""
    job = context.job
    if not context.mode.owns_loop:
        return
    context.emit(
        IssuePlacement,
        reason,
        rank=worker.index,
        instance=worker.instance,
        incarnation=job.incarnation,
        version=job.placement.version,
        blocks=job.placement.blocks,
        servers=_addresses(job.live_servers),
        generation=job.generation.number,
        peers=_peers(context),
        refills=job.refilling.by_block,
        again=context.mode.places_again(job),
    )


def _peers(context: Context) -> list[PeerAddress]:
    """The members of the present generation, where workers communicate directly."""
    asks_peers = context.chosen.peer_barrier is not None
    if not asks_peers and not context.spec.reduces:
        return []  # first, because this is called for every worker and the rest takes time per member
    members = context.job.counting
    if asks_peers:
        return [
            PeerAddress(
                rank=worker.index,
                host=worker.host,
                port=worker.port,
                instance=worker.instance,
                from_iteration=worker.from_iteration,
            )
            for worker in members
            if worker.port
        ]
    return [PeerAddress(rank=worker.index, host=worker.host, port=worker.port) for worker in members]


def issue_server_orders(context: Context, server: Server, reason: str) -> None:
    """Send a server its blocks and the workers that count."""
    job = context.job
    members = [
        Member(rank=rank, instance=job.workers[rank].instance, from_iteration=job.workers[rank].from_iteration)
        for rank in job.generation.roster
        if not (
            job.refilling.by_block and job.workers[rank].state is ProcessState.FINISHED
        )  # it cannot push anything again
    ]
    lost = set(job.refilling.current.lost) if job.refilling.current is not None else set()
    stepping = context.mode.stepping(job)
    change = job.placement.change
    moves = change.moves if change is not None else {}
    sends = {index: each.destination for index, each in moves.items() if each.source == server.index}
    context.emit(
        IssueServerOrders,
        reason,
        index=server.index,
        instance=server.instance,
        receivers=_addresses(_peers_of(context, server, set(sends.values()))),
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
            aggregation=context.spec.weighing,
            apply=context.mode.apply(job),
            apply_from=job.updates.apply_from,
            skip_to=job.updates.skip_to,
            awaits=[b.index for b in job.placement.blocks if b.server == server.index and b.index in lost],
            beside=[each.instance for each in job.live_servers] if context.spec.checkpoint is not None else [],
            restore=job.checkpoints.restore,
            save_at=job.checkpoints.save_at,
            whole=job.checkpoints.whole if server.index == min(each.index for each in job.live_servers) else None,
            scale=stepping.scale,
            gather=stepping.gather,
            quorums=dict(job.updates.quorums),
            named_from=job.updates.apply_from if context.chosen.quorum_barrier is not None else None,
            passed=dict(job.updates.passed),
        ),
    )


def _peers_of(context: Context, server: Server, receivers: Set[int]) -> list[Server]:
    """The servers that receive blocks from this one; all other servers if they must agree on a gradient's norm."""
    job, spec = context.job, context.spec
    if spec.server_mode == "stateful" and clips_by_norm(spec.applied):
        return [other for other in job.live_servers if other is not server]
    return [job.servers[index] for index in sorted(receivers)]


def _addresses(servers: Iterable[Server]) -> dict[int, tuple[str, str, int]]:
    """Servers that have sent their address."""
    return {server.index: (server.instance, server.host, server.port) for server in servers if server.port}
