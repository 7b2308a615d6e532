"""Who counts, and from when: each change makes a new generation."""

import itertools

from controlplane.core import (
    asynchrony,
    checkpoints,
    flags,
    handout,
    learning,
    leases,
    partial,
    pausing,
    placing,
    releases,
    standing,
)
from controlplane.core.choices import ImpossibleShares, ShareRequest
from controlplane.core.commands import MoveJob, SetRoster
from controlplane.core.handling import Handling
from controlplane.core.records import Worker
from controlplane.core.state import Generation, Hold, Job
from controlplane.core.states import JobState, ProcessState
from controlplane.core.wording import being, number_of

NAMED = 8
"""How many of those who have not said hello are named."""

PATIENCE_MS = 5_000
"""How long a job that may begin with fewer workers waits for the others."""

HERE = frozenset({ProcessState.READY, ProcessState.UNREACHABLE})


def begin_when_ready(handling: Handling) -> None:
    """Start a generation once every process has said hello, or enough have and the others had their time."""
    job, spec = handling.job, handling.spec
    missing = len(job.lives.starting) + len(job.lives.revivals)
    if missing and not _enough(handling):
        more = missing - NAMED
        titles = itertools.islice(itertools.chain(job.lives.starting, job.lives.revivals), NAMED)
        named = ", ".join(titles) + (f" and {more} more" if more > 0 else "")
        handling.give(MoveJob, "its processes start", state=job.state, awaited=f"hello of {named}")
        return
    ready = [rank for rank, worker in sorted(job.workers.items()) if worker.state in HERE]
    if job.lives.is_rebuilding:
        _begin_again(handling, ready)
        return
    if not checkpoints.choose_start(handling, ready):
        return
    placing.place_first(handling)
    missed = f"{len(ready)} of " if len(ready) < spec.workers else ""
    who = f"{missed}{number_of(spec.workers, 'worker')}{_and_servers(spec.servers)}"
    handling.move_job(JobState.RUNNING, f"{who} {being(spec.workers + spec.servers)} ready")
    job.running_ms = handling.now_ms
    if spec.stop.iterations is not None and handling.chosen.gate is None:
        job.end.stop_at = spec.stop.iterations
        job.end.reason = f"{spec.stop.iterations} iterations were asked for"
    _enlist(handling, ready, job.round.completed + 1)
    begin_generation(handling, ready, first_iteration=job.round.completed + 1, reason="the first roster")


def enough_at_ms(job: Job) -> int | None:
    """When those who are missing at the beginning have had their time; None where nobody begins."""
    if job.lives.is_rebuilding:
        return job.lives.rebuild_ms + PATIENCE_MS
    assert job.spec is not None
    can_begin = job.state is JobState.STARTING and job.spec.elastic.minimum_workers is not None
    return job.since_ms + PATIENCE_MS if can_begin else None


def _enough(handling: Handling) -> bool:
    """Everybody is looked at only when the others have had their time."""
    job = handling.job
    at_ms = enough_at_ms(job)
    if at_ms is None or handling.now_ms < at_ms:
        return False
    ready = sum(worker.state in HERE for worker in job.workers.values())
    servers_are_here = all(title[0] == "w" for title in itertools.chain(job.lives.starting, job.lives.revivals))
    return servers_are_here and ready >= (handling.spec.elastic.minimum_workers or 1)


def _begin_again(handling: Handling, ready: list[int]) -> None:
    """After a rollback: with new servers, from the iteration that is next."""
    job, spec = handling.job, handling.spec
    job.lives.is_rebuilding = False
    job.placement.plans += 1
    job.placement.version = job.placement.plans
    del job.pauses[pausing.rebuilding_cause(handling)]
    # Too few workers were here, or too few for the limits: both are decided anew by who is here now.
    job.pauses.pop("limits", None)
    least = spec.elastic.minimum_workers or 1
    if len(ready) >= least:
        job.pauses.pop("workers", None)
    first = job.round.completed + 1
    who = f"{number_of(len(ready), 'worker')}{_and_servers(len(job.live_servers))}"
    verb = "goes" if who == "1 worker" else "go"
    reason = f"{who} {verb} on with iteration {first}"
    if job.pauses or job.requests.choices:
        job.hold = Hold(sequence=job.sequence + 1)
    if not job.pauses:
        job.paused_ms += handling.now_ms - job.since_ms
        handling.move_job(JobState.RUNNING, reason, awaited=pausing.BOUNDARY if job.requests.choices else "")
    _enlist(handling, ready, first)
    begin_generation(handling, ready, first_iteration=first, reason=reason)


def _and_servers(number: int) -> str:
    """A job without servers is silent about them."""
    return f" and {number_of(number, 'server')}" if number else ""


def _enlist(handling: Handling, ranks: list[int], first: int) -> None:
    """These count from ``first`` on, and owe nothing before."""
    for rank in ranks:
        worker = handling.job.workers[rank]
        worker.done = first - 1
        leases.raise_to(worker, first - 1)
        flags.close_flag(handling, rank, "lost", f"w{rank} counts again from iteration {first} on")


def begin_generation(handling: Handling, ranks: list[int], *, first_iteration: int, reason: str) -> None:
    """From ``first_iteration`` on, ``ranks`` count: new shares, and orders for everyone."""
    job = handling.job
    before = job.generation
    left = {rank: before.shares[rank] for rank in before.roster if rank not in ranks}
    for rank in set(ranks) - set(before.roster):
        job.workers[rank].from_iteration = first_iteration
    job.generation = Generation(number=before.number + 1, roster=ranks, first_iteration=first_iteration)
    standing.recount(job)
    _resize(handling, first_iteration)
    job.generation.shares = _even_split(job.batch, ranks) if ranks else {}
    handling.give(SetRoster, reason, generation=job.generation.number, first_iteration=first_iteration, ranks=ranks)
    if ranks and not handout.begin(handling, ranks):
        return
    told = _share_out(handling, before, first_iteration) if ranks else reason
    releases.raise_watermarks(handling)
    partial.begin(handling, left)
    asynchrony.begin(handling)
    placing.place_generation(handling)
    # Placement before orders: orders name a placement version that the worker must have. Sequence numbers of the
    # servers' orders come from the workers' ones, so those are made first and the servers' follow.
    for worker in [job.workers[rank] for rank in ranks]:
        releases.issue_placement(handling, worker, reason)
    releases.issue_all(handling, told)
    for server in job.live_servers:
        releases.issue_server_orders(handling, server, reason)
    if ranks and not job.generation.is_short:
        pausing.lift(handling, "policy", told)
        pausing.lift(handling, "limits", told)


def _share_out(handling: Handling, before: Generation, first_iteration: int) -> str:
    """Shares for the new roster; where limits forbid any, or the policy fails, the job pauses. Why they are so."""
    request: ShareRequest = releases.share_request(handling, first_iteration)
    try:
        state, decision = handling.chosen.batching.start(request, handling.chosen.batching_state)
    except ImpossibleShares as error:
        return _keep_shares(handling, before, "limits", str(error))
    except Exception as error:
        handling.fault = error
        return _keep_shares(handling, before, "policy", learning.told_of(handling, error))
    handling.chosen.batching_state = state
    learning.record(handling, decision)
    releases.take_shares(handling, decision, first_iteration, tell=True)
    return decision.reason


def _keep_shares(handling: Handling, before: Generation, cause: pausing.Cause, why: str) -> str:
    """The shares from before stay, and the job pauses; why it does."""
    job = handling.job
    shares = {rank: before.shares.get(rank, 0) for rank in job.generation.roster}
    job.generation.shares, job.generation.share_from = shares, before.share_from
    job.generation.offsets = handling.chosen.data.offsets(shares)
    job.generation.is_short = True
    job.samples.budget_width = 0
    reason = f"no shares for generation {job.generation.number}: {why}"
    pausing.pause(handling, cause, reason)
    return reason


def _resize(handling: Handling, first_iteration: int) -> None:
    """Where the global batch goes with the number of workers: later iterations take their samples from here on."""
    job, spec = handling.job, handling.spec
    size = len(job.generation.roster) * spec.usual_share
    if spec.elastic.global_batch == "keep" or size in (0, job.batch):
        return
    if handling.chosen.gate is None:
        job.samples.origin_position += (first_iteration - job.samples.origin_iteration) * job.width
        job.samples.origin_iteration = first_iteration
    job.samples.global_batch = size


def depart(handling: Handling, worker: Worker, why: str) -> None:
    """A counting worker is gone: the others, if there are any, go on without it in a new generation."""
    job = handling.job
    forget(handling, worker, why)
    left = [rank for rank in job.generation.roster if rank != worker.index]
    first = min((standing.stand(job.workers[rank]) for rank in left), default=job.round.completed) + 1
    begin_generation(handling, left, first_iteration=first, reason=f"{worker.title} {why}")


def forget(handling: Handling, worker: Worker, why: str) -> None:
    """Nothing is expected of a worker any more that counted until now; a generation without it follows."""
    job = handling.job
    flags.close_all(handling, f"{worker.title} {why}", rank=worker.index)
    if worker.state is ProcessState.LOST:
        flags.open_flag(handling, worker.index, "lost", "lasting", f"{worker.title} {why}", {"iteration": worker.done})
    for observed in (*job.round.observed.values(), job.round.recent):
        observed.pop(worker.index, None)
    leases.drop_after(job, worker, worker.done)
    handout.on_departure(handling, worker)
    job.updates.passed.pop(worker.index, None)


def _even_split(total: int, ranks: list[int]) -> dict[int, int]:
    base, rest = divmod(total, len(ranks))
    return {rank: base + (position < rest) for position, rank in enumerate(ranks)}
