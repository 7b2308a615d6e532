"""Invariants of a job, for any log. Checked after each test that uses the engine."""

from controlplane.core.processes import AT_WORK, Process, ProcessState
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState


def check(job: Job) -> None:
    """Assert every invariant.

    Raises:
        AssertionError: naming the job and what does not hold.
    """
    if job.spec is None:
        assert not job.workers, _story(job, "there are workers before submission")
        return
    _check_counts(job)
    _check_roster(job)
    _check_shares(job)
    _check_placement(job)
    for worker in job.workers.values():
        assert worker.done <= worker.watermark, _story(job, f"{worker.title} is at {worker.done}, beyond its grant")
        if worker.orders is not None:
            orders = worker.orders
            assert orders.watermark <= worker.watermark, _story(job, f"{worker.title} was granted more than recorded")
            assert orders.sequence <= job.sequence, _story(job, f"{worker.title} has orders of the future")
            # An asynchronous worker may be stopped before the end of its grant: no other worker waits for it.
            reaches_stop = orders.stop_at is not None and orders.watermark >= orders.stop_at
            excused = worker.stop_at is not None or job.forgot or worker.rank is not None
            assert not reaches_stop or excused, _story(job, "granted beyond the stop")
    for key, name in job.flags.open.items():
        assert job.state not in JOB_OVER, _story(job, f"flag {name} ({key}) is open after the end")


def _check_counts(job: Job) -> None:
    """Cached counts agree with the records that they summarize."""
    processes: list[Process] = [*job.workers.values(), *job.servers.values()]
    silent = {process.title for process in processes if process.state is ProcessState.ORDERED}
    assert set(job.starts.starting) == silent, _story(job, f"{set(job.starts.starting) ^ silent} start, or do not")
    busy = sum(worker.state in AT_WORK for worker in job.workers.values())
    assert job.starts.at_work == busy, _story(job, f"{busy} workers are at work, not {job.starts.at_work}")


def _check_roster(job: Job) -> None:
    assert job.generation.roster == sorted(set(job.generation.roster)), _story(
        job, f"roster {job.generation.roster} is not a sorted set"
    )
    if job.state not in {JobState.RUNNING, JobState.PAUSED, JobState.FINISHING}:
        return
    gone = [rank for rank in job.generation.roster if job.workers[rank].state is ProcessState.LOST]
    assert not gone, _story(job, f"lost workers {gone} count")
    assert (job.state is JobState.PAUSED) == bool(job.pauses), _story(job, f"it is paused for {job.pauses}")
    if not job.generation.roster:
        excused = job.pauses or job.requests.join_at is not None
        assert excused, _story(job, "no worker counts, it is not paused, and no worker waits to join")
        return
    reached = min(job.workers[rank].last_completed for rank in job.generation.roster)
    assert job.round.completed >= reached or job.round.completed == -1 == reached, _story(
        job, f"iteration {reached} stays open"
    )


def _check_shares(job: Job) -> None:
    if not job.generation.number or job.state in JOB_OVER:
        return
    assert job.spec is not None
    assert sorted(job.generation.shares) == job.generation.roster, _story(
        job, f"shares of {sorted(job.generation.shares)}, roster {job.generation.roster}"
    )
    total = sum(job.generation.shares.values())
    if not job.generation.roster or job.generation.is_short:
        return
    assert total == job.batch, _story(job, f"shares sum to {total}, not {job.batch}")
    low, high = job.spec.limits.minimum, job.spec.limits.maximum
    for rank, share in job.generation.shares.items():
        assert low <= share <= (total if high is None else high), _story(job, f"w{rank} has share {share}")
    for rank, most in job.generation.ceilings.items():
        assert job.generation.shares[rank] <= most, _story(
            job, f"w{rank} may process {most}, its share is {job.generation.shares[rank]}"
        )
    widths = job.generation.ceilings or job.generation.shares
    spans = sorted(
        (job.generation.offsets[rank], job.generation.offsets[rank] + width) for rank, width in widths.items()
    )
    ends = [0, *(stop for _, stop in spans)]
    assert all(start == end for (start, _), end in zip(spans, ends, strict=False)), _story(job, f"ranges {spans}")
    assert ends[-1] == job.width, _story(job, f"ranges end at {ends[-1]}, the batch at {job.width}")


def _check_placement(job: Job) -> None:
    if not job.placement.version or not job.servers:
        return
    edges = [0]
    for block in job.placement.blocks:
        assert block.start == edges[-1], _story(job, f"block {block.index} starts at {block.start}, not {edges[-1]}")
        assert block.server in job.servers, _story(job, f"block {block.index} is on server {block.server}")
        edges.append(block.stop)
    size = sum(next(iter(job.servers.values())).tensor_sizes)
    assert edges[-1] == size, _story(job, f"blocks end at {edges[-1]} of {size}")


def _story(job: Job, what: str) -> str:
    return (
        f"job {job.number} ({job.state}, generation {job.generation.number}, iteration {job.round.completed}): {what}"
    )
