"""Which server holds which block: placements, moves of blocks, and servers that are added and removed.

Blocks are slices of the flattened parameters. The placement policy gets the transfer times of each iteration, and may
move blocks, or add and remove servers. Users may add or drain a server.

A change is ordered as one transaction: each source freezes its blocks at the version that the orders name, hands them
to their new servers with checksums, and reports when these have acknowledged all of them. The last such report commits
the
change: the new placement holds for all, and only from then on does a source reply that a block has moved. Until then
the old placement holds, so nothing is lost if a change is cancelled before its commit (a server dies, a transfer
fails): sources continue with the frozen blocks, and destinations drop what they received. The gain and the cost of a
change are measured and compared with the prediction (``PlacementTrial``).

For a new server (PSLD section 5.1) the engine first requests a slot from the scheduler. The server starts like any
other, says hello, and can then be used by the placement. A server without blocks that is to leave is ended, and its
slot is released. Training continues meanwhile.
"""

from collections import defaultdict
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, median
from typing import Final

import msgspec

from controlplane.core import ordering
from controlplane.core.choices import (
    PlacementDecision,
    PlacementPolicy,
    PlacementRequest,
    Rebalancing,
    TensorPlacement,
    Transfer,
)
from controlplane.core.commands import (
    AbandonMove,
    DrainServer,
    MeasurePlacement,
    MoveBlocks,
    MoveJob,
    ReleaseSlot,
    RequestSlot,
    SetPlacement,
)
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import Assignment, DrainRequested, ServerRequested, SlotRefused
from controlplane.core.records import BlockMove, PlacementChange, PlacementTrial, SlotRequest
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, ProcessState, Server, Worker, move
from controlplane.protocol.messages import BlocksHanded, IterationReport
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
    emit_placement(context, reason)


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
    blocks, reason = placement.place(slices, [*_usable_servers(job), *more])
    if [(block.start, block.stop) for block in blocks] != slices:
        raise ValueError(
            f"{placement.name} would cut the parameters into {len(blocks)} blocks, and a running job keeps "
            f"the {len(slices)} that it has; submit a new job with it"
        )
    return blocks, reason


def adopt_policy(context: Context, reason: str) -> None:
    """Adopt another placement policy: carry out its first decision about the present blocks."""
    if context.job.placement.change is not None:
        abandon_change(context, reason)
    wanted = wanted_by(context, context.chosen.placement)
    if wanted is not None:
        begin_change(context, wanted[0], f"{reason}; {wanted[1]}")


def transfers_of(worker: Worker, report: IterationReport) -> list[Transfer]:
    """A report's exchanges, in the form that policies get."""
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


def review_placement(context: Context, transfers: list[Transfer]) -> None:
    """One more iteration is complete: consult the placement policy."""
    policies = context.chosen
    measure_trial(context, transfers)
    if follow_requests(context) or policies.rebalancing is None:
        return
    announce_new_servers(context)
    if policies.placement_state is None:
        policies.placement_state = policies.rebalancing.begin()
    policies.placement_state, decision = policies.rebalancing.decide(
        _request(context), transfers, policies.placement_state
    )
    _carry_out(context, decision)


def follow_requests(context: Context) -> bool:
    """Move blocks off drained servers and onto a requested one; True if the policy must wait for that."""
    job = context.job
    drained = [server.index for server in job.live_servers if server.draining]
    if not drained and not job.requests.respread:
        return False
    if job.placement.change is None and not is_ending(job):
        emptied = without_drained(job)
        if emptied is not None:
            begin_change(context, *emptied)
        elif job.requests.respread and _has_come(job):
            wanted = wanted_by(context, context.chosen.placement)
            reason, job.requests.respread = job.requests.respread, ""
            if wanted is not None:
                begin_change(context, wanted[0], f"{reason}; {wanted[1]}")
    retire_servers(context, drained, "it was drained and holds no blocks")
    return any(block.server in drained for block in job.placement.blocks)


def _has_come(job: Job) -> bool:
    """Whether a connected server holds no blocks."""
    held = {block.server for block in job.placement.blocks}
    return any(can_hold(server) and server.index not in held for server in job.live_servers)


def is_ending(job: Job) -> bool:
    """Whether the end is too near for blocks to move."""
    return job.end.stop_at is not None and job.round.completed + 2 >= job.end.stop_at


def _request(context: Context) -> PlacementRequest:
    job, spec = context.job, context.spec
    return PlacementRequest(
        iteration=job.round.completed,
        blocks=job.placement.blocks,
        servers=_usable_servers(job),
        initial=spec.servers,
        spare=spare_servers(context),
        starting=servers_underway(job),
        seed=spec.seed + SEEDS_APART * (job.round.completed + 1),
    )


def _carry_out(context: Context, decision: PlacementDecision) -> None:
    job = context.job
    if is_ending(job):
        return
    if decision.blocks is not None and job.placement.change is None:
        begin_change(context, decision.blocks, decision.reason, now_s=decision.now_s, predicted_s=decision.predicted_s)
    if decision.add:
        ask_for_server(context, decision.reason)
    if decision.retire:
        retire_servers(context, decision.retire, f"it has held no blocks for long: {decision.reason}")
    if decision.probes:
        _probe(context, decision.probes)


def _probe(context: Context, probes: dict[int, int]) -> None:
    """Have one worker time the servers, another one each time."""
    job = context.job
    job.placement.probes, job.placement.probe_round = probes, job.placement.probe_round + 1
    job.placement.prober = job.generation.roster[job.placement.probe_round % len(job.generation.roster)]
    named = ", ".join(f"s{server}" for server in sorted(probes))
    ordering.issue(context, job.workers[job.placement.prober], f"{named} will be timed by a small transfer")


def _usable_servers(job: Job) -> list[int]:
    """Servers that may hold blocks."""
    return [server.index for server in job.live_servers if can_hold(server)]


def on_server_requested(context: Context, event: ServerRequested) -> None:
    """Request a slot for one more server. The placement policy assigns blocks to it once it is connected."""
    job, request = context.job, f"job {context.job.number}: another server by {event.actor}"
    _check_has_servers(context, request)
    if not spare_servers(context, insist=True):
        assert job.placement.request is not None
        raise EventRefused(f"{request}, but a slot for s{job.placement.request.index} is already requested")
    if not isinstance(context.chosen.placement, Rebalancing):
        try:
            wanted_by(context, context.chosen.placement, more=[max(job.servers) + 1])
        except ValueError as error:
            raise EventRefused(f"{request}: {error}") from None
        job.requests.respread = f"another server was requested by {event.actor}"
    ask_for_server(context, f"another server was requested by {event.actor}")


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
    if not any(can_hold(each) for each in job.live_servers if each is not server):
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


class MoveState(StrEnum):
    """How far the move of one block has come."""

    ORDERED = "ordered"
    HANDED = "handed"
    COMMITTED = "committed"
    ABANDONED = "abandoned"


M = MoveState

MOVE_ARROWS: dict[MoveState, frozenset[MoveState]] = {
    M.ORDERED: frozenset({M.HANDED, M.ABANDONED}),
    M.HANDED: frozenset({M.COMMITTED, M.ABANDONED}),
    M.COMMITTED: frozenset(),
    M.ABANDONED: frozenset(),
}
"""A block that was not handed over cannot be committed."""


def can_hold(server: Server) -> bool:
    """Whether blocks may be put on ``server``: it is connected, has an address, and is not about to leave."""
    return is_up(server) and not server.draining


def is_up(server: Server) -> bool:
    """Whether it is connected, has an address, and was not ordered to end."""
    return server.state in (ProcessState.READY, ProcessState.UNREACHABLE) and server.port > 0 and not server.retiring


def begin_change(
    context: Context,
    blocks: Sequence[Block],
    reason: str,
    *,
    now_s: float | None = None,
    predicted_s: float | None = None,
) -> None:
    """Order the moves that lead to the placement ``blocks``; no effect if no block moves."""
    job = context.job
    here = {block.index: block.server for block in job.placement.blocks}
    moves = {
        block.index: BlockMove(source=here[block.index], destination=block.server, state=M.ORDERED)
        for block in blocks
        if here[block.index] != block.server
    }
    if not moves or job.placement.change is not None or job.refilling.current is not None:
        return
    job.placement.plans += 1
    job.placement.change = PlacementChange(
        version=job.placement.plans,
        blocks=list(blocks),
        moves=moves,
        freeze_at=_freeze_at(context),
        ordered_ms=context.now_ms,
        reason=reason,
        now_s=now_s,
        predicted_s=predicted_s,
    )
    begin_trial(context, job.placement.plans, predicted_s)
    context.emit(
        MoveBlocks,
        reason,
        version=job.placement.change.version,
        policy=job.synchronization.placement.name,
        freeze_at=job.placement.change.freeze_at,
        moves={index: [each.source, each.destination] for index, each in moves.items()},
        now_s=now_s,
        predicted_s=predicted_s,
    )
    _order_servers(context, reason)


def on_handed(context: Context, server: Server, message: BlocksHanded) -> None:
    """A source reports that the new servers have acknowledged its blocks, or that the transfer failed."""
    change = context.job.placement.change
    if change is None or message.placement != change.version:
        return
    if message.failure:
        abandon_change(context, f"{server.title} could not hand its blocks over: {message.failure}")
        return
    for index in message.blocks:
        each = change.moves.get(index)
        if each is not None and each.source == server.index and each.state == M.ORDERED:
            each.state = _move_block(context.job, index, each, M.HANDED)
    change.frozen_s = max(change.frozen_s, message.seconds)
    if all(each.state == M.HANDED for each in change.moves.values()):
        _commit_change(context, change)


def on_server_lost(context: Context, server: Server) -> None:
    """A server is lost: cancel the open change."""
    if context.job.placement.change is not None:
        abandon_change(context, f"{server.title} is lost")


def abandon_change(context: Context, reason: str) -> None:
    """Cancel the change. The next one gets another version, so late messages are not mistaken for it."""
    job = context.job
    change, job.placement.change, job.placement.trial = job.placement.change, None, None
    assert change is not None
    for index, each in change.moves.items():
        each.state = _move_block(job, index, each, M.ABANDONED)
    context.emit(AbandonMove, f"{reason}: its blocks are not moved", version=change.version)
    _order_servers(context, reason)


def _commit_change(context: Context, change: PlacementChange) -> None:
    job = context.job
    for index, each in change.moves.items():
        each.state = _move_block(job, index, each, M.COMMITTED)
    job.placement.change = None
    job.placement.version, job.placement.blocks = change.version, change.blocks
    took_s = (context.now_ms - change.ordered_ms) / 1000
    note_commit(job, took_s)
    placement_holds(context, f"{len(change.moves)} blocks have moved, {took_s:.2f} s after the order: {change.reason}")


def announce_new_servers(context: Context) -> None:
    """Send workers the servers that joined after the placement was made, so that these can be timed."""
    job = context.job
    new = [
        server.title
        for server in job.live_servers
        if can_hold(server) and server.index not in job.placement.known_servers
    ]
    if not new or job.placement.change is not None or job.refilling.current is not None:
        return
    job.placement.renew()
    placement_holds(context, f"{', '.join(new)} can receive blocks now")


def emit_placement(context: Context, reason: str) -> None:
    """Emit the present placement as a decision."""
    job = context.job
    policy = job.synchronization.placement.name
    context.emit(SetPlacement, reason, version=job.placement.version, policy=policy, blocks=job.placement.blocks)


def placement_holds(context: Context, reason: str) -> None:
    """Put the present placement into effect."""
    job = context.job
    job.placement.known_servers = [server.index for server in job.live_servers if server.port]
    emit_placement(context, reason)
    sentence = f"placement {job.placement.version} holds"
    _order_servers(context, sentence)
    for rank in job.generation.roster:
        ordering.issue_placement(context, job.workers[rank], sentence)
    ordering.issue_all(context, sentence)


def _freeze_at(context: Context) -> int:
    """Synchronous modes move between two versions: after the open iteration, which some may be pushing already."""
    job = context.job
    return context.mode.freeze_at(job)


def _order_servers(context: Context, reason: str) -> None:
    context.job.sequence += 1
    for server in context.job.live_servers:
        ordering.issue_server_orders(context, server, reason)


def _move_block(job: Job, index: int, each: BlockMove, state: MoveState) -> MoveState:
    return move(f"job {job.number}, block {index}", MOVE_ARROWS, MoveState(each.state), state)


TRIAL_ITERATIONS: Final = 5
"""The effect of a placement is measured over this many iterations, or up to the next change; the first is skipped."""


def begin_trial(context: Context, version: int, predicted_s: float | None) -> None:
    """A change of placement is ordered: end the measurement of an earlier one with what it has."""
    job = context.job
    if job.placement.trial is not None and job.placement.trial.seconds:
        _conclude_trial(context, job.placement.trial)
    job.placement.trial = PlacementTrial(version=version, before_s=job.placement.exchange_s, predicted_s=predicted_s)


def note_commit(job: Job, took_s: float) -> None:
    """A change is committed, ``took_s`` seconds after its order."""
    if job.placement.trial is not None:
        job.placement.trial.committed, job.placement.trial.took_s = job.round.completed, took_s


def note_pause(job: Job, worker: Worker, report: IterationReport) -> None:
    """Moving blocks have delayed ``worker``."""
    if job.placement.trial is not None:
        job.placement.trial.paused_s[worker.index] = (
            job.placement.trial.paused_s.get(worker.index, 0.0) + report.moving_s
        )


def measure_trial(context: Context, transfers: Sequence[Transfer]) -> None:
    """Add one iteration: the median over the workers for each server, and of these the longest."""
    job = context.job
    seconds: dict[int, list[float]] = defaultdict(list)
    for seen in transfers:
        if not seen.is_probe:
            seconds[seen.server].append(seen.seconds)
    if not seconds:
        return
    job.placement.exchange_s = max(median(each) for each in seconds.values())
    trial = job.placement.trial
    if trial is None or trial.committed is None or job.round.completed <= trial.committed + 1:
        return
    trial.seconds.append(job.placement.exchange_s)
    if len(trial.seconds) >= TRIAL_ITERATIONS:
        _conclude_trial(context, trial)


def _conclude_trial(context: Context, trial: PlacementTrial) -> None:
    context.job.placement.trial = None
    after_s, paused_s = fmean(trial.seconds), max(trial.paused_s.values(), default=0.0)
    sentence = f"an exchange takes {after_s * 1000:.3g} ms"
    if trial.before_s is not None:
        sentence += f" instead of {trial.before_s * 1000:.3g} ms"
    if trial.predicted_s is not None:
        sentence += f" (predicted: {trial.predicted_s * 1000:.3g} ms)"
    context.emit(
        MeasurePlacement,
        f"{sentence}; the change blocked workers for {paused_s * 1000:.3g} ms at most",
        version=trial.version,
        before_s=trial.before_s,
        predicted_s=trial.predicted_s,
        after_s=after_s,
        paused_s=paused_s,
        took_s=trial.took_s,
    )


ANSWER_MS: Final = 10_000
"""A request without an answer for this long was lost."""

ASK_AGAIN_MS: Final = 30_000
"""How long to wait after a refusal: slots may become free meanwhile."""


def spare_servers(context: Context, *, insist: bool = False) -> int:
    """How many more servers could be requested now; ``insist`` ignores a recent refusal."""
    job = context.job
    if job.placement.request is not None and context.now_ms - job.placement.request.requested_ms >= ANSWER_MS:
        job.placement.request = None
    return 1 if job.placement.request is None and (insist or context.now_ms >= job.placement.ask_again_ms) else 0


def servers_underway(job: Job) -> int:
    """How many servers were requested or ordered and are not connected yet."""
    ordered = sum(server.state is ProcessState.ORDERED for server in job.live_servers)
    return ordered + (job.placement.request is not None)


def ask_for_server(context: Context, reason: str) -> None:
    """Ask for a slot for one more server."""
    job = context.job
    job.placement.request = SlotRequest(index=max(job.servers) + 1, requested_ms=context.now_ms)
    context.emit(RequestSlot, reason, role="server", index=job.placement.request.index)


def takes_slot(context: Context, assignments: Sequence[Assignment]) -> bool:
    """Whether this is the requested slot; if so, the request is done."""
    job = context.job
    request = job.placement.request
    if request is None or [(each.role, each.index) for each in assignments] != [("server", request.index)]:
        return False
    job.placement.request = None
    return True


def on_slot_refused(context: Context, event: SlotRefused) -> None:
    """No slot is free: the job continues with its current servers."""
    job = context.job
    request = job.placement.request
    waited = request is not None and (event.role, event.index) == ("server", request.index)
    if not waited or job.state in JOB_OVER:
        raise EventRefused(
            f"job {job.number}: a slot for {event.role} {event.index} is refused: no request waits for it"
        )
    job.placement.request, job.requests.respread = None, ""
    job.placement.ask_again_ms = context.now_ms + ASK_AGAIN_MS
    context.emit(
        MoveJob,
        f"no slot for another server: {event.reason}; the job continues with {len(job.live_servers)}",
        state=job.state,
        awaited="",
    )


def retire_servers(context: Context, indices: Sequence[int], reason: str) -> None:
    """End servers that hold nothing, as long as one is left."""
    job = context.job
    held = {block.server for block in job.placement.blocks}
    if job.placement.change is not None:
        held |= {block.server for block in job.placement.change.blocks}
    for index in indices:
        server = job.servers[index]
        if index in held or not is_up(server):
            continue
        server.retiring = True
        context.stop_process(server, reason)


def without_drained(job: Job) -> tuple[list[Block], str] | None:
    """A placement without drained servers: largest blocks first, each to the least loaded server; None if none can take
    them.
    """
    drained = {server.index for server in job.live_servers if server.draining}
    there = dict.fromkeys((server.index for server in job.live_servers if can_hold(server)), 0)
    leaving = [block for block in job.placement.blocks if block.server in drained]
    if not leaving or not there:
        return None
    for block in job.placement.blocks:
        if block.server in there:
            there[block.server] += block.stop - block.start
    placed = {}
    for block in sorted(leaving, key=lambda block: (block.start - block.stop, block.index)):
        server = min(there, key=lambda index: (there[index], index))
        there[server] += block.stop - block.start
        placed[block.index] = msgspec.structs.replace(block, server=server)
    named = ", ".join(f"s{index}" for index in sorted(drained))
    return [
        placed.get(block.index, block) for block in job.placement.blocks
    ], f"{named} is drained: the others receive its blocks"


def let_server_go(context: Context, server: Server, why: str) -> bool:
    """A server has ended. If it held no blocks, release its slot; the job continues without it."""
    job = context.job
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or job.starts.is_rebuilding:
        return False
    if any(block.server == server.index for block in job.placement.blocks):
        return False
    if job.placement.change is not None and any(
        each.destination == server.index for each in job.placement.change.moves.values()
    ):
        on_server_lost(context, server)
    context.move_process(server, ProcessState.STOPPED if server.retiring else ProcessState.LOST, why)
    if not server.retiring:
        context.stop_process(server, why)
    context.emit(ReleaseSlot, f"{server.title} held nothing and {why}", role="server", index=server.index)
    return True
