"""Starts a job once all or enough of its processes have said hello, and again after a rollback."""

import itertools

from controlplane.core import granting, membership, placing, recovery, sharing
from controlplane.core.commands import MoveJob
from controlplane.core.context import Context, being, number_of
from controlplane.core.state import Hold, Job
from controlplane.core.states import HERE, JobState

NAMED = 8
"""How many of the missing processes a sentence names."""

PATIENCE_MS = 5_000
"""How long a job that may begin with fewer workers waits for the others."""


def begin_when_ready(context: Context) -> None:
    """Start a generation once every process has said hello, or enough have and the wait for the others timed out."""
    job, spec = context.job, context.spec
    missing = len(job.starts.starting) + len(job.starts.revivals)
    if missing and not _enough(context):
        more = missing - NAMED
        titles = itertools.islice(itertools.chain(job.starts.starting, job.starts.revivals), NAMED)
        named = ", ".join(titles) + (f" and {more} more" if more > 0 else "")
        context.emit(MoveJob, "its processes start", state=job.state, awaited=f"hello of {named}")
        return
    ready = [rank for rank, worker in sorted(job.workers.items()) if worker.state in HERE]
    if job.starts.is_rebuilding:
        _begin_again(context, ready)
        return
    if not recovery.choose_start(context, ready):
        return
    placing.place_first(context)
    missed = f"{len(ready)} of " if len(ready) < spec.workers else ""
    who = f"{missed}{number_of(spec.workers, 'worker')}{_and_servers(spec.servers)}"
    context.move_job(JobState.RUNNING, f"{who} {being(spec.workers + spec.servers)} ready")
    job.running_ms = context.now_ms
    if (last := context.mode.first_stop(spec)) is not None:
        job.end.stop_at = last
        job.end.reason = f"{spec.stop.iterations} iterations were requested"
    _enlist(context, ready, job.round.completed + 1)
    membership.begin_generation(context, ready, first_iteration=job.round.completed + 1, reason="the first roster")


def enough_at_ms(job: Job) -> int | None:
    """When the wait for processes missing at the start times out; None if no process is starting."""
    if job.starts.is_rebuilding:
        return job.starts.rebuild_ms + PATIENCE_MS
    assert job.spec is not None
    can_begin = job.state is JobState.STARTING and job.spec.elastic.minimum_workers is not None
    return job.since_ms + PATIENCE_MS if can_begin else None


def _enough(context: Context) -> bool:
    """Whether enough processes are ready. They are counted only after the wait has timed out."""
    job = context.job
    at_ms = enough_at_ms(job)
    if at_ms is None or context.now_ms < at_ms:
        return False
    ready = sum(worker.state in HERE for worker in job.workers.values())
    servers_are_here = all(title[0] == "w" for title in itertools.chain(job.starts.starting, job.starts.revivals))
    return servers_are_here and ready >= (context.spec.elastic.minimum_workers or 1)


def _begin_again(context: Context, ready: list[int]) -> None:
    """Continue after a rollback: with new servers, from the next iteration."""
    job, spec = context.job, context.spec
    job.starts.is_rebuilding = False
    job.placement.renew()
    del job.pauses[granting.rebuilding_cause(context)]
    # Before, there were too few workers, or too few for the limits: check both again for the present workers.
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
        job.paused_ms += context.now_ms - job.since_ms
        context.move_job(JobState.RUNNING, reason, awaited=granting.BOUNDARY if job.requests.choices else "")
    _enlist(context, ready, first)
    membership.begin_generation(context, ready, first_iteration=first, reason=reason)


def _and_servers(number: int) -> str:
    """Empty for a job without servers."""
    return f" and {number_of(number, 'server')}" if number else ""


def _enlist(context: Context, ranks: list[int], first: int) -> None:
    """Make these ranks members from iteration ``first`` on; they need not report earlier iterations."""
    for rank in ranks:
        worker = context.job.workers[rank]
        worker.done = first - 1
        sharing.raise_watermark(worker, first - 1)
        context.close_flag(rank, "lost", f"w{rank} counts again from iteration {first} on")
