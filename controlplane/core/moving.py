"""Blocks on their way from server to server: a change of placement, from its order to its commit or its end.

A change is ordered as a whole: each source freezes its blocks at the version that the orders name, hands them to their
new servers with checksums, and says so once these have acknowledged all of them. With the last such word the change is
committed: the new placement holds for everybody, and only then does a source answer that a block has moved. Until then
the old placement holds, so whatever ends a change before its commit (a server dies, a hand-over fails) loses nothing:
sources go on with what they froze, and destinations drop what they were given.
"""

from collections.abc import Sequence
from enum import StrEnum

from controlplane.core import releases, trials
from controlplane.core.commands import AbandonMove, MoveBlocks, SetPlacement
from controlplane.core.handling import Handling
from controlplane.core.records import BlockMove, PlacementChange, Server
from controlplane.core.state import Job
from controlplane.core.states import ProcessState, move
from controlplane.protocol.messages import BlocksHanded
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
    """Whether blocks may be put on ``server``: it is here, has said where it listens, and is not about to leave."""
    return is_up(server) and not server.draining


def is_up(server: Server) -> bool:
    """Whether it is here, has said where it listens, and was not told to end."""
    return server.state in (ProcessState.READY, ProcessState.UNREACHABLE) and server.port > 0 and not server.retiring


def begin(
    handling: Handling,
    blocks: Sequence[Block],
    reason: str,
    *,
    now_s: float | None = None,
    predicted_s: float | None = None,
) -> None:
    """Order that the job's blocks get to where ``blocks`` has them; nothing happens where they are there already."""
    job = handling.job
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
        freeze_at=_freeze_at(handling),
        ordered_ms=handling.now_ms,
        reason=reason,
        now_s=now_s,
        predicted_s=predicted_s,
    )
    trials.begin(handling, job.placement.plans, predicted_s)
    handling.give(
        MoveBlocks,
        reason,
        version=job.placement.change.version,
        policy=job.synchronization.placement.name,
        freeze_at=job.placement.change.freeze_at,
        moves={index: [each.source, each.destination] for index, each in moves.items()},
        now_s=now_s,
        predicted_s=predicted_s,
    )
    _tell_servers(handling, reason)


def on_handed(handling: Handling, server: Server, message: BlocksHanded) -> None:
    """A source says that new servers have acknowledged its blocks, or that they cannot be handed over."""
    change = handling.job.placement.change
    if change is None or message.placement != change.version:
        return
    if message.failure:
        abandon(handling, f"{server.title} could not hand its blocks over: {message.failure}")
        return
    for index in message.blocks:
        each = change.moves.get(index)
        if each is not None and each.source == server.index and each.state == M.ORDERED:
            each.state = _step(handling.job, index, each, M.HANDED)
    change.frozen_s = max(change.frozen_s, message.seconds)
    if all(each.state == M.HANDED for each in change.moves.values()):
        _commit(handling, change)


def on_server_lost(handling: Handling, server: Server) -> None:
    """A server is lost: what is under way is not carried through."""
    if handling.job.placement.change is not None:
        abandon(handling, f"{server.title} is lost")


def abandon(handling: Handling, reason: str) -> None:
    """The blocks stay where they are; the next change gets another version, so nothing late is taken for it."""
    job = handling.job
    change, job.placement.change, job.placement.trial = job.placement.change, None, None
    assert change is not None
    for index, each in change.moves.items():
        each.state = _step(job, index, each, M.ABANDONED)
    handling.give(AbandonMove, f"{reason}: its blocks stay where they are", version=change.version)
    _tell_servers(handling, reason)


def _commit(handling: Handling, change: PlacementChange) -> None:
    job = handling.job
    for index, each in change.moves.items():
        each.state = _step(job, index, each, M.COMMITTED)
    job.placement.change = None
    job.placement.version, job.placement.blocks = change.version, change.blocks
    took_s = (handling.now_ms - change.ordered_ms) / 1000
    trials.committed(job, took_s)
    tell_everybody(handling, f"{len(change.moves)} blocks have moved, {took_s:.2f} s after the order: {change.reason}")


def introduce(handling: Handling) -> None:
    """Tell workers of servers that have come since the placement was made, so that they can be timed."""
    job = handling.job
    new = [
        server.title
        for server in job.live_servers
        if can_hold(server) and server.index not in job.placement.known_servers
    ]
    if not new or job.placement.change is not None or job.refilling.current is not None:
        return
    job.placement.plans += 1
    job.placement.version = job.placement.plans
    tell_everybody(handling, f"{', '.join(new)} can be given blocks from now on")


def give_placement(handling: Handling, reason: str) -> None:
    """The placement that the job has now, as a decision."""
    job = handling.job
    policy = job.synchronization.placement.name
    handling.give(SetPlacement, reason, version=job.placement.version, policy=policy, blocks=job.placement.blocks)


def tell_everybody(handling: Handling, reason: str) -> None:
    """The present placement holds from now on."""
    job = handling.job
    job.placement.known_servers = [server.index for server in job.live_servers if server.port]
    give_placement(handling, reason)
    told = f"placement {job.placement.version} holds"
    _tell_servers(handling, told)
    for rank in job.generation.roster:
        releases.issue_placement(handling, job.workers[rank], told)
    releases.issue_all(handling, told)


def _freeze_at(handling: Handling) -> int:
    """Synchronous modes move between two versions: after the open iteration, which some may be pushing already."""
    job = handling.job
    return 0 if handling.chosen.gate is not None else max(job.round.completed + 2, job.generation.first_iteration)


def _tell_servers(handling: Handling, reason: str) -> None:
    handling.job.sequence += 1
    for server in handling.job.live_servers:
        releases.issue_server_orders(handling, server, reason)


def _step(job: Job, index: int, each: BlockMove, state: MoveState) -> MoveState:
    return move(f"job {job.number}, block {index}", MOVE_ARROWS, MoveState(each.state), state)
