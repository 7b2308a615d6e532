"""What is always true of a job, whatever was seen. Checked after each test that uses the engine."""

from controlplane.core.standing import stand
from controlplane.core.state import Job
from controlplane.core.states import JOB_OVER, JobState, ProcessState


def check(job: Job) -> None:
    """Assert every invariant.

    Raises:
        AssertionError: naming the job and what does not hold.
    """
    if job.spec is None:
        assert not job.workers, _story(job, "there are workers before submission")
        return
    _check_roster(job)
    _check_shares(job)
    _check_placement(job)
    for worker in job.workers.values():
        assert worker.done <= worker.watermark, _story(job, f"{worker.title} is at {worker.done}, beyond its leave")
        if worker.orders is not None:
            orders = worker.orders
            assert orders.watermark <= worker.watermark, _story(job, f"{worker.title} was told more than its leave")
            assert orders.sequence <= job.sequence, _story(job, f"{worker.title} has orders of the future")
            # An asynchronous worker may be stopped short of its leave: nobody waits for it there.
            reaches_stop = orders.stop_at is not None and orders.watermark >= orders.stop_at
            assert not reaches_stop or worker.stop_at is not None, _story(job, "leave beyond the stop")
    for key, name in job.flags.items():
        assert job.state not in JOB_OVER, _story(job, f"flag {name} ({key}) is open after the end")


def _check_roster(job: Job) -> None:
    assert job.roster == sorted(set(job.roster)), _story(job, f"roster {job.roster} is not a sorted set")
    if job.state not in {JobState.RUNNING, JobState.PAUSED, JobState.FINISHING}:
        return
    gone = [rank for rank in job.roster if job.workers[rank].state is ProcessState.DEAD]
    assert not gone, _story(job, f"dead workers {gone} count")
    reached = min(stand(job.workers[rank]) for rank in job.roster)
    assert job.completed >= reached or job.completed == -1 == reached, _story(job, f"iteration {reached} stays open")


def _check_shares(job: Job) -> None:
    if not job.generation or job.state in JOB_OVER:
        return
    assert job.spec is not None
    assert sorted(job.shares) == job.roster, _story(job, f"shares of {sorted(job.shares)}, roster {job.roster}")
    total = sum(job.shares.values())
    assert total == job.spec.global_batch, _story(job, f"shares sum to {total}, not {job.spec.global_batch}")
    low, high = job.spec.limits.minimum, job.spec.limits.maximum
    for rank, share in job.shares.items():
        assert low <= share <= (total if high is None else high), _story(job, f"w{rank} has share {share}")
    spans = sorted((job.offsets[rank], job.offsets[rank] + share) for rank, share in job.shares.items())
    ends = [0, *(stop for _, stop in spans)]
    assert all(start == end for (start, _), end in zip(spans, ends, strict=False)), _story(job, f"ranges {spans}")


def _check_placement(job: Job) -> None:
    if not job.placement_version:
        return
    edges = [0]
    for block in job.blocks:
        assert block.start == edges[-1], _story(job, f"block {block.index} starts at {block.start}, not {edges[-1]}")
        assert block.server in job.servers, _story(job, f"block {block.index} is on server {block.server}")
        edges.append(block.stop)
    size = sum(next(iter(job.servers.values())).tensor_sizes)
    assert edges[-1] == size, _story(job, f"blocks end at {edges[-1]} of {size}")


def _story(job: Job, what: str) -> str:
    return f"job {job.number} ({job.state}, generation {job.generation}, iteration {job.completed}): {what}"
