"""Which server holds which block: the first placement, policies' changes to it, and users' requests.

Blocks are slices of the flattened parameters. Each iteration's exchanges are shown to the placement policy, which may
move blocks, or add and remove servers. Users may add or drain a server.
"""

from collections.abc import Sequence

from controlplane.core import moving, ordering
from controlplane.core.choices import (
    PlacementDecision,
    PlacementPolicy,
    PlacementRequest,
    Rebalancing,
    TensorPlacement,
    Transfer,
)
from controlplane.core.commands import DrainServer
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import DrainRequested, ServerRequested
from controlplane.core.processes import Worker
from controlplane.core.state import Job
from controlplane.core.states import JobState
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import ELEMENT_BYTES, Block

SEEDS_APART = 1_000_003
"""Makes the seeds of neighbouring iterations' decisions very different."""

BLOCK_BYTES = 4 * 1024 * 1024
"""Largest block (PSLD section 5.2)."""


def place_first(context: Context) -> None:
    """Assign every block to a server, if there are any, before anything is measured."""
    job, placement = context.job, context.chosen.placement
    if context.spec.reduces:
        return
    sizes, servers = job.servers[0].tensor_sizes, sorted(job.servers)
    if isinstance(placement, TensorPlacement):
        job.placement.blocks, reason = placement.place_tensors(sizes, servers)
    else:
        job.placement.blocks, reason = placement.place(cut_blocks(sizes), servers)
    job.placement.renew()
    job.placement.known_servers = servers
    moving.give_placement(context, reason)


def wanted_by(
    context: Context, placement: PlacementPolicy, *, more: Sequence[int] = ()
) -> tuple[list[Block], str] | None:
    """Where ``placement`` puts the blocks of a running job; None if it first needs measurements.

    ``more``: servers that it should assume to exist.

    Raises:
        ValueError: if it would cut other blocks: a running job keeps its blocks.
    """
    job = context.job
    if isinstance(placement, Rebalancing):
        return None
    slices = [(block.start, block.stop) for block in job.placement.blocks]
    blocks, reason = placement.place(slices, [*_able(job), *more])
    if [(block.start, block.stop) for block in blocks] != slices:
        raise ValueError(
            f"{placement.name} would cut the parameters into {len(blocks)} blocks, and a running job keeps "
            f"the {len(slices)} that it has; submit a new job with it"
        )
    return blocks, reason


def adopt(context: Context, reason: str) -> None:
    """Another placement policy holds: its first decision about the blocks as they are."""
    if context.job.placement.change is not None:
        moving.abandon(context, reason)
    wanted = wanted_by(context, context.chosen.placement)
    if wanted is not None:
        moving.begin(context, wanted[0], f"{reason}; {wanted[1]}")


def transfers_of(worker: Worker, report: IterationReport) -> list[Transfer]:
    """A report's exchanges, as policies see them."""
    return [
        Transfer(
            rank=worker.index,
            server=each.server,
            iteration=report.iteration,
            bytes=each.bytes,
            seconds=each.seconds,
            is_probe=each.is_probe,
        )
        for each in report.exchanges
    ]


def review(context: Context, transfers: list[Transfer]) -> None:
    """One more iteration is complete: consult the placement policy."""
    policies = context.chosen
    moving.measure_trial(context, transfers)
    if follow_requests(context) or policies.rebalancing is None:
        return
    moving.introduce(context)
    if policies.placement_state is None:
        policies.placement_state = policies.rebalancing.begin()
    policies.placement_state, decision = policies.rebalancing.decide(
        _request(context), transfers, policies.placement_state
    )
    _carry_out(context, decision)


def follow_requests(context: Context) -> bool:
    """Move blocks off drained servers and onto a requested one; whether the policy must wait for that."""
    job = context.job
    drained = [server.index for server in job.live_servers if server.draining]
    if not drained and not job.requests.respread:
        return False
    if job.placement.change is None and not is_ending(job):
        emptied = moving.emptied(job)
        if emptied is not None:
            moving.begin(context, *emptied)
        elif job.requests.respread and _has_come(job):
            wanted = wanted_by(context, context.chosen.placement)
            reason, job.requests.respread = job.requests.respread, ""
            if wanted is not None:
                moving.begin(context, wanted[0], f"{reason}; {wanted[1]}")
    moving.retire_servers(context, drained, "it was drained and holds no blocks")
    return any(block.server in drained for block in job.placement.blocks)


def _has_come(job: Job) -> bool:
    """Whether a connected server holds no blocks."""
    held = {block.server for block in job.placement.blocks}
    return any(moving.can_hold(server) and server.index not in held for server in job.live_servers)


def is_ending(job: Job) -> bool:
    """Whether the end is too near for blocks to move."""
    return job.end.stop_at is not None and job.round.completed + 2 >= job.end.stop_at


def _request(context: Context) -> PlacementRequest:
    job, spec = context.job, context.spec
    return PlacementRequest(
        iteration=job.round.completed,
        blocks=job.placement.blocks,
        servers=_able(job),
        initial=spec.servers,
        spare=moving.spare_servers(context),
        starting=moving.servers_underway(job),
        seed=spec.seed + SEEDS_APART * (job.round.completed + 1),
    )


def _carry_out(context: Context, decision: PlacementDecision) -> None:
    job = context.job
    if is_ending(job):
        return
    if decision.blocks is not None and job.placement.change is None:
        moving.begin(context, decision.blocks, decision.reason, now_s=decision.now_s, predicted_s=decision.predicted_s)
    if decision.add:
        moving.ask_for_server(context, decision.reason)
    if decision.retire:
        moving.retire_servers(context, decision.retire, f"it has held no blocks for long: {decision.reason}")
    if decision.probes:
        _probe(context, decision.probes)


def _probe(context: Context, probes: dict[int, int]) -> None:
    """Have one worker time the servers, another one each time."""
    job = context.job
    job.placement.probes, job.placement.probe_round = probes, job.placement.probe_round + 1
    job.placement.prober = job.generation.roster[job.placement.probe_round % len(job.generation.roster)]
    named = ", ".join(f"s{server}" for server in sorted(probes))
    ordering.issue(context, job.workers[job.placement.prober], f"{named} will be timed by a small transfer")


def _able(job: Job) -> list[int]:
    """Servers that may hold blocks."""
    return [server.index for server in job.live_servers if moving.can_hold(server)]


def on_server_requested(context: Context, event: ServerRequested) -> None:
    """Request a slot for one more server. The placement policy decides what it holds once it is here."""
    job, request = context.job, f"job {context.job.number}: another server by {event.actor}"
    _check_has_servers(context, request)
    if not moving.spare_servers(context, insist=True):
        assert job.placement.request is not None
        raise EventRefused(f"{request}, but a slot for s{job.placement.request.index} is already requested")
    if not isinstance(context.chosen.placement, Rebalancing):
        try:
            wanted_by(context, context.chosen.placement, more=[max(job.servers) + 1])
        except ValueError as error:
            raise EventRefused(f"{request}: {error}") from None
        job.requests.respread = f"another server was requested by {event.actor}"
    moving.ask_for_server(context, f"another server was requested by {event.actor}")


def drain_server(context: Context, event: DrainRequested) -> None:
    """Drain a server: it hands over its blocks, then ends."""
    job, request = context.job, f"job {context.job.number}: drain of s{event.index} by {event.actor}"
    _check_has_servers(context, request)
    server = job.servers.get(event.index)
    if server is None or server.over:
        here = ", ".join(each.title for each in job.live_servers)
        raise EventRefused(f"{request}, but it is not here; {here} are")
    if server.draining or server.retiring:
        raise EventRefused(f"{request}, but it is already about to leave")
    if not any(moving.can_hold(each) for each in job.live_servers if each is not server):
        raise EventRefused(f"{request}, but no other server could hold its blocks")
    server.draining = True
    reason = f"{server.title} was drained by {event.actor}: its blocks move to the others, and then it ends"
    context.emit(DrainServer, reason, index=server.index)
    follow_requests(context)


def _check_has_servers(context: Context, request: str) -> None:
    job = context.job
    if context.spec.reduces:
        if not context.mode.owns_loop:
            raise EventRefused(f"{request}, but an attached job has no servers: the script's own backend moves tensors")
        raise EventRefused(f"{request}, but an all-reduce job has no servers: workers hold the parameters")
    if job.state is not JobState.RUNNING:
        raise EventRefused(
            f"{request}, but the job is {job.state}: blocks move only between iterations of a running one"
        )
    if is_ending(job):
        raise EventRefused(
            f"{request}, but the job ends before iteration {job.end.stop_at}: blocks would not arrive in time"
        )


def cut_blocks(tensor_sizes: list[int], *, block_bytes: int = BLOCK_BYTES) -> list[tuple[int, int]]:
    """Slices ``[start, stop)`` of the flattened parameters, in elements, that cover it in order.

    A block never spans two tensors, so that placements by tensor and by block can be compared; tensors above
    ``block_bytes`` are cut into parts of nearly equal size. A tensor without elements has no block.

    Args:
        tensor_sizes: elements of each parameter tensor, in the model's order.
        block_bytes: the largest block.
    """
    slices: list[tuple[int, int]] = []
    start = 0
    for size in tensor_sizes:
        parts = -(-size * ELEMENT_BYTES // block_bytes)
        slices += [(start + size * part // parts, start + size * (part + 1) // parts) for part in range(parts)]
        start += size
    return slices
