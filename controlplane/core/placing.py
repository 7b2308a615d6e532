"""Which server holds which block: the first placement, and what each iteration's exchanges say of it afterwards.

A change of placement is on trial (``trials``): what it cost and what it was worth is measured and told.
"""

from collections.abc import Sequence

from controlplane.core import moving, releases, scaling, trials
from controlplane.core.blocks import cut_blocks
from controlplane.core.choices import (
    PlacementDecision,
    PlacementPolicy,
    PlacementRequest,
    Rebalancing,
    TensorPlacement,
    Transfer,
)
from controlplane.core.handling import Handling
from controlplane.core.records import Worker
from controlplane.core.state import Job
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Block

SEEDS_APART = 1_000_003
"""Decisions of neighbouring iterations get seeds that are far from each other's."""


def place_first(handling: Handling) -> None:
    """Put every block on a server, if there are any, before anything is measured."""
    job, placement = handling.job, handling.chosen.placement
    if handling.spec.reduces:
        return
    sizes, servers = job.servers[0].tensor_sizes, sorted(job.servers)
    if isinstance(placement, TensorPlacement):
        job.placement.blocks, reason = placement.place_tensors(sizes, servers)
    else:
        job.placement.blocks, reason = placement.place(cut_blocks(sizes), servers)
    job.placement.plans += 1
    job.placement.version, job.placement.known_servers = job.placement.plans, servers
    moving.give_placement(handling, reason)


def place_generation(handling: Handling) -> None:
    """Without servers, the members of a generation are its placement: they find each other by it."""
    job = handling.job
    if handling.spec.reduces:
        job.placement.plans += 1
        job.placement.version = job.placement.plans


def wanted_by(
    handling: Handling, placement: PlacementPolicy, *, more: Sequence[int] = ()
) -> tuple[list[Block], str] | None:
    """Where ``placement`` wants the blocks of a running job; None if it first wants to see how servers do.

    ``more``: servers that it should take for granted.

    Raises:
        ValueError: if it wants other blocks than there are: a running job keeps those that it was cut into.
    """
    job = handling.job
    if isinstance(placement, Rebalancing):
        return None
    slices = [(block.start, block.stop) for block in job.placement.blocks]
    blocks, reason = placement.place(slices, [*_able(job), *more])
    if [(block.start, block.stop) for block in blocks] != slices:
        raise ValueError(
            f"{placement.name} would cut the parameters into {len(blocks)} blocks of its own, and a running job keeps "
            f"the {len(slices)} that it has; submit a new job with it"
        )
    return blocks, reason


def adopt(handling: Handling, reason: str) -> None:
    """Another placement policy holds: its first decision about the blocks as they are."""
    if handling.job.placement.change is not None:
        moving.abandon(handling, reason)
    wanted = wanted_by(handling, handling.chosen.placement)
    if wanted is not None:
        moving.begin(handling, wanted[0], f"{reason}; {wanted[1]}")


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


def review(handling: Handling, transfers: list[Transfer]) -> None:
    """One more iteration is complete: the placement is looked at."""
    policies = handling.chosen
    trials.measure(handling, transfers)
    if follow_requests(handling) or policies.rebalancing is None:
        return
    moving.introduce(handling)
    if policies.placement_state is None:
        policies.placement_state = policies.rebalancing.begin()
    policies.placement_state, decision = policies.rebalancing.decide(
        _request(handling), transfers, policies.placement_state
    )
    _carry_out(handling, decision)


def follow_requests(handling: Handling) -> bool:
    """Blocks leave servers that are drained and get to one that was asked for; whether a policy must wait for that."""
    job = handling.job
    drained = [server.index for server in job.live_servers if server.draining]
    if not drained and not job.requests.respread:
        return False
    if job.placement.change is None and not is_ending(job):
        emptied = scaling.emptied(job)
        if emptied is not None:
            moving.begin(handling, *emptied)
        elif job.requests.respread and _has_come(job):
            wanted = wanted_by(handling, handling.chosen.placement)
            reason, job.requests.respread = job.requests.respread, ""
            if wanted is not None:
                moving.begin(handling, wanted[0], f"{reason}; {wanted[1]}")
    scaling.retire(handling, drained, "it was drained and holds no blocks")
    return any(block.server in drained for block in job.placement.blocks)


def _has_come(job: Job) -> bool:
    """Whether a server is here that holds nothing."""
    held = {block.server for block in job.placement.blocks}
    return any(moving.can_hold(server) and server.index not in held for server in job.live_servers)


def is_ending(job: Job) -> bool:
    """Whether the end is too near for blocks to move."""
    return job.end.stop_at is not None and job.round.completed + 2 >= job.end.stop_at


def _request(handling: Handling) -> PlacementRequest:
    job, spec = handling.job, handling.spec
    return PlacementRequest(
        iteration=job.round.completed,
        blocks=job.placement.blocks,
        servers=_able(job),
        initial=spec.servers,
        spare=scaling.spare(handling),
        starting=scaling.underway(job),
        seed=spec.seed + SEEDS_APART * (job.round.completed + 1),
    )


def _carry_out(handling: Handling, decision: PlacementDecision) -> None:
    job = handling.job
    if is_ending(job):
        return
    if decision.blocks is not None and job.placement.change is None:
        moving.begin(handling, decision.blocks, decision.reason, now_s=decision.now_s, predicted_s=decision.predicted_s)
    if decision.add:
        scaling.ask(handling, decision.reason)
    if decision.retire:
        scaling.retire(handling, decision.retire, f"it has held no blocks for long: {decision.reason}")
    if decision.probes:
        _probe(handling, decision.probes)


def _probe(handling: Handling, probes: dict[int, int]) -> None:
    """Have one worker do it, another one each time."""
    job = handling.job
    job.placement.probes, job.placement.probe_round = probes, job.placement.probe_round + 1
    job.placement.prober = job.generation.roster[job.placement.probe_round % len(job.generation.roster)]
    named = ", ".join(f"s{server}" for server in sorted(probes))
    releases.issue(handling, job.workers[job.placement.prober], f"{named} is to be timed by a small transfer")


def _able(job: Job) -> list[int]:
    """Servers that blocks may be put on."""
    return [server.index for server in job.live_servers if moving.can_hold(server)]
