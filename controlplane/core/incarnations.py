"""A new life of the log: everything that holds is said again, under orders that replace whatever was ordered before.

It begins where a part of the log was lost, or where a replay decided otherwise than what had been published. Orders
that are known to have been published hold: what they gave leave for may have been done by now.
"""

from controlplane.core import conversation, releases
from controlplane.core.commands import BeginIncarnation, MoveJob, SetRoster, SetShares
from controlplane.core.events import IncarnationBegan
from controlplane.core.handling import EventRefused, Handling
from controlplane.core.leases import raise_to
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER
from controlplane.protocol.orders import Orders


def on_incarnation_began(handling: Handling, event: IncarnationBegan) -> None:
    """Take the published orders over, and say all that holds again."""
    job = handling.job
    if event.incarnation <= job.incarnation:
        found = f"incarnation {event.incarnation} began, but it is in incarnation {job.incarnation}"
        raise EventRefused(f"job {job.number}: {found}")
    job.incarnation = event.incarnation
    job.forgot |= event.forgot
    job.resumed_ms = handling.now_ms
    flags = sorted(job.flags.open.values())
    handling.give(BeginIncarnation, event.reason, incarnation=event.incarnation, after=event.after, flags=flags)
    _adopt(handling, event.published)
    for rank in list(job.generation.roster):
        conversation.take_early(handling, job.workers[rank])
    reason = f"incarnation {event.incarnation}: {event.reason}"
    _tell_processes(handling, reason)
    if job.state not in JOB_OVER:
        handling.give(MoveJob, reason, state=job.state, awaited=job.awaited)
        _tell_roster(handling, reason)


def _adopt(handling: Handling, published: dict[int, Orders]) -> None:
    job = handling.job
    current = {rank: orders for rank, orders in published.items() if job.counts(rank)}
    for rank, orders in current.items():
        raise_to(job.workers[rank], max(job.workers[rank].watermark, orders.watermark))
        if handling.chosen.gate is not None:
            job.workers[rank].leases = list(orders.ranges)
            ends = [lease.position + (lease.last - lease.first + 1) * lease.share for lease in orders.ranges]
            job.samples.cursor = max([job.samples.cursor, *ends])
    if handling.chosen.gate is None and _divide_the_batch(job, current):
        job.generation.shares = {rank: current[rank].share for rank in job.generation.roster}
        job.generation.offsets = {rank: current[rank].offset for rank in job.generation.roster}
        job.generation.share_from = max(orders.share_from for orders in current.values())


def _divide_the_batch(job: Job, published: dict[int, Orders]) -> bool:
    """Whether these orders are one decision about everybody who counts."""
    if sorted(published) != job.generation.roster or any(
        orders.generation != job.generation.number for orders in published.values()
    ):
        return False
    share_from = {orders.share_from for orders in published.values()}
    spans = sorted((orders.offset, orders.offset + orders.share) for orders in published.values())
    ends = [0, *(stop for _, stop in spans)]
    whole = ends[-1] == sum(job.generation.shares.values())
    return whole and len(share_from) == 1 and all(start == end for (start, _), end in zip(spans, ends, strict=False))


def _tell_processes(handling: Handling, reason: str) -> None:
    job = handling.job
    for process in (*job.workers.values(), *job.servers.values()):
        if process.over or job.state in JOB_OVER:
            handling.stop_process(process, reason)
        else:
            handling.start_process(process, reason)
        handling.tell_process(process, reason)


def _tell_roster(handling: Handling, reason: str) -> None:
    job = handling.job
    if not job.generation.number:
        return
    handling.give(
        SetRoster,
        reason,
        generation=job.generation.number,
        first_iteration=job.generation.first_iteration,
        ranks=list(job.generation.roster),
    )
    handling.give(
        SetShares,
        reason,
        generation=job.generation.number,
        iteration=job.generation.share_from,
        policy=job.synchronization.batching.name,
        shares=dict(job.generation.shares),
    )
    for rank in job.generation.roster:
        releases.issue_placement(handling, job.workers[rank], reason)
    releases.issue_all(handling, reason)
    for server in job.live_servers:
        releases.issue_server_orders(handling, server, reason)
