"""Moves of blocks between servers, and servers that are added and removed while the job runs.

A change is ordered as a whole: each source freezes its blocks at the version that the orders name, hands them to their
new servers with checksums, and reports when these have acknowledged all of them. The last such report commits the
change: the new placement holds for all, and only then does a source answer that a block has moved. Until then the old
placement holds, so nothing is lost if a change ends before its commit (a server dies, a transfer fails): sources
continue with the frozen blocks, and destinations drop what they received. The gain and the cost of a change are
measured and compared with the prediction (``PlacementTrial``).

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
from controlplane.core.choices import Transfer
from controlplane.core.commands import (
    AbandonMove,
    MeasurePlacement,
    MoveBlocks,
    MoveJob,
    ReleaseSlot,
    RequestSlot,
    SetPlacement,
)
from controlplane.core.context import Context, EventRefused
from controlplane.core.events import Assignment, SlotRefused
from controlplane.core.processes import ProcessState, Server, Worker
from controlplane.core.records import BlockMove, PlacementChange, PlacementTrial, SlotRequest
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, move
from controlplane.protocol.messages import BlocksHanded, IterationReport
from controlplane.protocol.orders import Block


class MoveState(StrEnum):
    """Where one block is on its way."""

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


def begin(
    context: Context,
    blocks: Sequence[Block],
    reason: str,
    *,
    now_s: float | None = None,
    predicted_s: float | None = None,
) -> None:
    """Order that the job's blocks get to where ``blocks`` has them; nothing happens where they are there already."""
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
        abandon(context, f"{server.title} could not hand its blocks over: {message.failure}")
        return
    for index in message.blocks:
        each = change.moves.get(index)
        if each is not None and each.source == server.index and each.state == M.ORDERED:
            each.state = _step(context.job, index, each, M.HANDED)
    change.frozen_s = max(change.frozen_s, message.seconds)
    if all(each.state == M.HANDED for each in change.moves.values()):
        _commit(context, change)


def on_server_lost(context: Context, server: Server) -> None:
    """A server is lost: cancel the open change."""
    if context.job.placement.change is not None:
        abandon(context, f"{server.title} is lost")


def abandon(context: Context, reason: str) -> None:
    """Cancel the change. The next one gets another version, so late messages are not mistaken for it."""
    job = context.job
    change, job.placement.change, job.placement.trial = job.placement.change, None, None
    assert change is not None
    for index, each in change.moves.items():
        each.state = _step(job, index, each, M.ABANDONED)
    context.emit(AbandonMove, f"{reason}: its blocks are not moved", version=change.version)
    _order_servers(context, reason)


def _commit(context: Context, change: PlacementChange) -> None:
    job = context.job
    for index, each in change.moves.items():
        each.state = _step(job, index, each, M.COMMITTED)
    job.placement.change = None
    job.placement.version, job.placement.blocks = change.version, change.blocks
    took_s = (context.now_ms - change.ordered_ms) / 1000
    note_commit(job, took_s)
    order_all(context, f"{len(change.moves)} blocks have moved, {took_s:.2f} s after the order: {change.reason}")


def introduce(context: Context) -> None:
    """Send workers the servers that have joined since the placement was made, so that they can be timed."""
    job = context.job
    new = [
        server.title
        for server in job.live_servers
        if can_hold(server) and server.index not in job.placement.known_servers
    ]
    if not new or job.placement.change is not None or job.refilling.current is not None:
        return
    job.placement.renew()
    order_all(context, f"{', '.join(new)} can receive blocks now")


def give_placement(context: Context, reason: str) -> None:
    """The placement that the job has now, as a decision."""
    job = context.job
    policy = job.synchronization.placement.name
    context.emit(SetPlacement, reason, version=job.placement.version, policy=policy, blocks=job.placement.blocks)


def order_all(context: Context, reason: str) -> None:
    """The present placement holds from now on."""
    job = context.job
    job.placement.known_servers = [server.index for server in job.live_servers if server.port]
    give_placement(context, reason)
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


def _step(job: Job, index: int, each: BlockMove, state: MoveState) -> MoveState:
    return move(f"job {job.number}, block {index}", MOVE_ARROWS, MoveState(each.state), state)


TRIAL_ITERATIONS: Final = 5
"""After so many under a new placement its effect is known, or before the next change; the first is not counted."""


def begin_trial(context: Context, version: int, predicted_s: float | None) -> None:
    """A change of placement is ordered: end the measurement of an earlier one with what it has."""
    job = context.job
    if job.placement.trial is not None and job.placement.trial.seconds:
        _conclude(context, job.placement.trial)
    job.placement.trial = PlacementTrial(version=version, before_s=job.placement.exchange_s, predicted_s=predicted_s)


def note_commit(job: Job, took_s: float) -> None:
    """It holds, so many seconds after its order."""
    if job.placement.trial is not None:
        job.placement.trial.committed, job.placement.trial.took_s = job.round.completed, took_s


def note_pause(job: Job, worker: Worker, report: IterationReport) -> None:
    """Moving blocks have delayed ``worker``."""
    if job.placement.trial is not None:
        job.placement.trial.paused_s[worker.index] = (
            job.placement.trial.paused_s.get(worker.index, 0.0) + report.moving_s
        )


def measure_trial(context: Context, transfers: Sequence[Transfer]) -> None:
    """One iteration's exchanges: of each server the median over the workers, of these the longest."""
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
        _conclude(context, trial)


def _conclude(context: Context, trial: PlacementTrial) -> None:
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
"""How long a refusal holds: slots may be given back meanwhile."""


def spare_servers(context: Context, *, insist: bool = False) -> int:
    """How many more servers could be requested now; ``insists`` ignores a recent refusal."""
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
    """Whether this is the slot that was asked for; then the request is done."""
    job = context.job
    request = job.placement.request
    if request is None or [(each.role, each.index) for each in assignments] != [("server", request.index)]:
        return False
    job.placement.request = None
    return True


def on_slot_refused(context: Context, event: SlotRefused) -> None:
    """There is none: the job continues with its current servers."""
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


def emptied(job: Job) -> tuple[list[Block], str] | None:
    """Where the blocks of drained servers go: the largest first, each to the one that holds least. None: nowhere."""
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
    """A server has ended: if it held nothing, the job continues without it, and its slot is released."""
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
