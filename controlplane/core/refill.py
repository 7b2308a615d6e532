"""A server is lost, and what it held is not: workers pulled its blocks, and a new server begins with their copies.

Each worker says which version it has of every lost block, and pulls none of them any more. Once all have spoken and the
new server is here, the newest copy of each block goes there. In lockstep nothing is done again: whoever had pushed to
a block beyond that version still has its update and pushes it again. Without lockstep, updates that nobody had pulled
yet are lost for those blocks. What an optimiser remembered of them is lost in any case; where that matters and there
is a checkpoint, the job goes back to it instead (``rollback``).
"""

from typing import Final

from controlplane.core import moving, pausing, releases, rollback
from controlplane.core.commands import RefillBlocks
from controlplane.core.handling import Handling
from controlplane.core.records import Refill, Server, Worker
from controlplane.core.state import Job
from controlplane.core.states import AT_WORK, JOB_OVER, JobState
from controlplane.protocol.messages import BlocksFilled, CopiesHeld
from controlplane.protocol.optimizers import is_stateless

_ALL_GONE: Final = "every worker that had a copy of its blocks ended as well"


def begin(handling: Handling, server: Server, lost: str) -> bool:
    """Ask the workers for what they have of the blocks of ``server``; False where there is a better way, or no way."""
    job, before = handling.job, handling.job.refilling.current
    asked = [rank for rank in job.generation.roster if job.workers[rank].state in AT_WORK]
    if not asked or not job.placement.blocks or not _is_best(handling):
        return False
    blocks = {block.index for block in job.placement.blocks if block.server == server.index}
    servers = {server.index}
    if before is not None:
        blocks, servers = blocks | set(before.lost), servers | set(before.servers)
    job.refilling.count += 1
    job.checkpoints.stage, job.checkpoints.save_at = "", None
    reason = f"{lost}; the workers have what it held as they last pulled it, and a new server begins with that"
    job.refilling.current = Refill(
        number=job.refilling.count,
        servers=sorted(servers),
        lost=sorted(blocks),
        asked=asked,
        reason=lost,
        began_ms=handling.now_ms if before is None else before.began_ms,
        count=len(blocks),
    )
    was_paused = job.state is JobState.PAUSED
    pausing.pause(handling, "servers", reason)
    if was_paused:
        releases.issue_all(handling, reason)
    advance(handling)
    return True


def on_copies(handling: Handling, worker: Worker, message: CopiesHeld) -> None:
    """A worker says what it has."""
    refill = handling.job.refilling.current
    if refill is None or message.refill != refill.number or worker.index not in refill.asked:
        return
    refill.copies[worker.index] = {
        block: (copies.version, copies.steps) for copies in message.copies for block in copies.blocks
    }
    advance(handling)


def on_worker_gone(handling: Handling, worker: Worker) -> None:
    """A worker died, or reached its end: its copies are gone."""
    refill = handling.job.refilling.current
    if refill is None or worker.index not in refill.asked:
        return
    refill.asked.remove(worker.index)
    refill.copies.pop(worker.index, None)
    advance(handling)


def on_filled(handling: Handling, message: BlocksFilled) -> None:
    """A server has begun with copies that it was given."""
    refill = handling.job.refilling.current
    if refill is not None:
        refill.lost = [block for block in refill.lost if block not in message.blocks]
        advance(handling)


def advance(handling: Handling) -> None:
    """Once the new servers are here and all workers have spoken, fill what is not; end when everything is.

    Called after each event while there is something to fill: who left since is not waited for.

    Workers are told of the new servers only then: whoever knows of them has left the lost ones for good.
    """
    job, refill = handling.job, handling.job.refilling.current
    if refill is None or job.state in JOB_OVER:
        return
    refill.asked = [rank for rank in refill.asked if job.counts(rank) and job.workers[rank].state in AT_WORK]
    gone = {block for block, rank in refill.fills.items() if rank not in refill.asked and block in refill.lost}
    refill.fills = {block: rank for block, rank in refill.fills.items() if block not in gone}
    refill.copies = {rank: copies for rank, copies in refill.copies.items() if rank in refill.asked}
    if set(refill.asked) - refill.copies.keys():
        return
    # Where nobody is left to ask, no copy will come: what follows need not wait for the servers.
    if refill.asked and not all(moving.is_up(job.servers[index]) for index in refill.servers):
        return
    nowhere = [block for block in refill.lost if not _holders(refill, block)]
    if nowhere and not _is_untouched(job):
        job.refilling.current = None
        missing = f"no worker has a whole copy of {len(nowhere)} of its blocks"
        rollback.begin(handling, f"{refill.reason}; {missing if refill.asked else _ALL_GONE}")
        return
    if not all(moving.is_up(job.servers[index]) for index in refill.servers):
        return
    refill.lost = [block for block in refill.lost if block not in nowhere]
    chosen = _choose(handling, refill)
    if not refill.placed:
        _place(handling, refill)
    else:
        for rank in chosen:
            releases.issue(handling, job.workers[rank], "its copies of lost blocks are the newest now")
    if not refill.lost:
        _finish(handling, refill)


def _choose(handling: Handling, refill: Refill) -> list[int]:
    """Whose copy of each block is the newest, where nobody was to give it; the ranks that were chosen."""
    chosen: set[int] = set()
    for block in refill.lost:
        if block in refill.fills:
            continue
        best = max(_holders(refill, block), key=lambda rank: (_worth(handling, refill, rank, block), -rank))
        refill.fills[block] = best
        version = refill.copies[best][block][0]
        refill.version = version if refill.version is None else min(refill.version, version)
        chosen.add(best)
    return sorted(chosen)


def _place(handling: Handling, refill: Refill) -> None:
    """Tell everybody of the new servers."""
    job = handling.job
    refill.placed = True
    job.placement.plans += 1
    job.placement.version = job.placement.plans
    job.refilling.by_block = job.refilling.by_block | {
        block: job.refilling.by_block.get(block, 0) + 1 for block in refill.lost
    }
    named = ", ".join(f"s{index}" for index in refill.servers)
    moving.tell_everybody(handling, f"{named} began anew and is given its blocks by workers")


def _worth(handling: Handling, refill: Refill, rank: int, block: int) -> tuple[int, int]:
    """In lockstep the version tells which copy is newer; else every worker counts for itself, and steps tell."""
    version, steps = refill.copies[rank][block]
    return (version, steps) if handling.chosen.gate is None else (steps, version)


def _finish(handling: Handling, refill: Refill) -> None:
    job, spec = handling.job, handling.spec
    job.refilling.current = None
    ranks = sorted(set(refill.fills.values()))
    named = ", ".join(f"w{rank}" for rank in ranks)
    what = f"{refill.count} block{'s' if refill.count != 1 else ''}"
    said = f"{what} began again as {named} had pulled them" if ranks else f"{what} began again as at first"
    if ranks and not _is_stateless(handling):
        said += f"; what {spec.applied.name} remembered of them is lost"
    if ranks and handling.chosen.gate is not None:
        said += "; updates that no worker had pulled are lost"
    handling.give(
        RefillBlocks,
        f"{refill.reason}; {said}",
        servers=refill.servers,
        blocks=refill.count,
        ranks=ranks,
        version=refill.version or 0,
        took_s=(handling.now_ms - refill.began_ms) / 1000,
    )
    releases.issue_all(handling, said)
    pausing.lift(handling, "servers", said)


def _is_best(handling: Handling) -> bool:
    """Whether workers can know the parameters, and nothing that is kept elsewhere is worth more."""
    job, spec = handling.job, handling.spec
    if spec.server_mode == "aggregating" or job.lives.is_rebuilding:
        return False
    return not job.checkpoints.kept or (handling.chosen.gate is None and _is_stateless(handling))


def _is_stateless(handling: Handling) -> bool:
    """Whether servers remember nothing beside the parameters: plain SGD."""
    return is_stateless(handling.spec.applied)


def _is_untouched(job: Job) -> bool:
    """Whether nobody has done anything since the parameters began: any server can begin as the first one did."""
    return job.round.completed < (job.checkpoints.restore.iteration if job.checkpoints.restore is not None else 0)


def _holders(refill: Refill, block: int) -> list[int]:
    return [rank for rank, copies in sorted(refill.copies.items()) if block in copies]
