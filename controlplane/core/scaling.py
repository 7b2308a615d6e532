"""More or fewer servers while the job runs (PSLD section 5.1): asked for, started, left without blocks, ended.

A new server is first asked for, since the slot is another's to give; it starts like any other, says hello, and is then
one of those that the placement may use: blocks get to it as to any. One that holds nothing, and is to leave, is ended
and its slot given back. Workers train on through all of it; what moving the blocks costs them is measured
(``placing``).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from controlplane.core import moving
from controlplane.core.commands import MoveJob, ReleaseSlot, RequestSlot
from controlplane.core.events import Assignment, SlotRefused
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.records import Server, SlotRequest
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, ProcessState
from controlplane.protocol.orders import Block

ANSWER_MS: Final = 10_000
"""A request that nobody has answered for so long was lost."""

ASK_AGAIN_MS: Final = 30_000
"""How long a refusal holds: slots may be given back meanwhile."""


def spare(handling: Handling, *, insist: bool = False) -> int:
    """How many more servers could be asked for now; who insists does not mind that there was no slot lately."""
    job = handling.job
    if job.placement.request is not None and handling.now_ms - job.placement.request.asked_ms >= ANSWER_MS:
        job.placement.request = None
    return 1 if job.placement.request is None and (insist or handling.now_ms >= job.placement.ask_again_ms) else 0


def underway(job: Job) -> int:
    """How many servers were asked for or ordered, and are not here."""
    ordered = sum(server.state is ProcessState.ORDERED for server in job.live_servers)
    return ordered + (job.placement.request is not None)


def ask(handling: Handling, reason: str) -> None:
    """Ask for a slot for one more server."""
    job = handling.job
    job.placement.request = SlotRequest(index=max(job.servers) + 1, asked_ms=handling.now_ms)
    handling.give(RequestSlot, reason, role="server", index=job.placement.request.index)


def takes(handling: Handling, assignments: Sequence[Assignment]) -> bool:
    """Whether this is the slot that was asked for; then nobody waits for it any more."""
    job = handling.job
    request = job.placement.request
    if request is None or [(each.role, each.index) for each in assignments] != [("server", request.index)]:
        return False
    job.placement.request = None
    return True


def on_slot_refused(handling: Handling, event: SlotRefused) -> None:
    """There is none: the job goes on with the servers that it has."""
    job = handling.job
    request = job.placement.request
    waited = request is not None and (event.role, event.index) == ("server", request.index)
    if not waited or job.state in JOB_OVER:
        raise EventRefused(f"job {job.number}: a slot for {event.role} {event.index} is refused that nobody waits for")
    job.placement.request, job.requests.respread = None, ""
    job.placement.ask_again_ms = handling.now_ms + ASK_AGAIN_MS
    handling.give(
        MoveJob,
        f"no slot for another server: {event.reason}; the job goes on with {len(job.live_servers)}",
        state=job.state,
        awaited="",
    )


def retire(handling: Handling, indices: Sequence[int], reason: str) -> None:
    """End servers that hold nothing, as long as one is left."""
    job = handling.job
    held = {block.server for block in job.placement.blocks}
    if job.placement.change is not None:
        held |= {block.server for block in job.placement.change.blocks}
    for index in indices:
        server = job.servers[index]
        if index in held or not moving.is_up(server):
            continue
        server.retiring = True
        handling.stop_process(server, reason)


def emptied(job: Job) -> tuple[list[Block], str] | None:
    """Where the blocks of drained servers go: the largest first, each to the one that holds least. None: nowhere."""
    drained = {server.index for server in job.live_servers if server.draining}
    there = dict.fromkeys((server.index for server in job.live_servers if moving.can_hold(server)), 0)
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
    ], f"{named} is drained: the others take its blocks"


def let_go(handling: Handling, server: Server, why: str) -> bool:
    """A server has ended: if it held nothing, the job goes on without it, and its slot is given back."""
    job = handling.job
    if job.state not in (JobState.RUNNING, JobState.PAUSED) or job.lives.is_rebuilding:
        return False
    if any(block.server == server.index for block in job.placement.blocks):
        return False
    if job.placement.change is not None and any(
        each.destination == server.index for each in job.placement.change.moves.values()
    ):
        moving.on_server_lost(handling, server)
    handling.move_process(server, ProcessState.STOPPED if server.retiring else ProcessState.LOST, why)
    if not server.retiring:
        handling.stop_process(server, why)
    handling.give(ReleaseSlot, f"{server.title} held nothing and {why}", role="server", index=server.index)
    return True
