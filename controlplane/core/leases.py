"""Samples of asynchronous jobs: ranges of the permutations, handed out in the order of release.

A worker's leases are all that it has leave for and has not reported, so that its orders stay complete by themselves.
What a worker does not use (it died, or the policies changed) is left out of that pass over the data, never given to
two.
"""

from controlplane.core.records import Worker
from controlplane.core.standing import stand
from controlplane.core.state import Job
from controlplane.protocol.orders import Range


def left_over(job: Job) -> int | None:
    """Samples that may still be handed out before the job has had as many as it asked for; None: no such limit.

    That is ``stop.iterations`` times the global batch, in any mode: a fast worker takes more iterations of its own.
    """
    assert job.spec is not None
    asked = job.spec.stop.iterations
    if asked is None:
        return None
    return max(0, asked * job.spec.global_batch - (job.samples.cursor - job.samples.dropped))


def reach(job: Job, worker: Worker, watermark: int) -> int:
    """How far up to ``watermark`` the worker should have leave, so that all end together.

    Towards the end of a job nobody gets more than it can use in half of the time that is left (guided
    self-scheduling); else the fast would wait for the slowest to use up a long lease.
    """
    left = left_over(job)
    if left is None:
        return watermark
    if job.pace.speed > 0 and worker.pace_s > 0:
        iterations = left / job.pace.speed / worker.pace_s
    else:
        iterations = left / (len(job.generation.roster) * max(1, job.generation.shares[worker.index]))
    return min(watermark, stand(worker) + max(1, int(iterations / 2)))


def grant(job: Job, worker: Worker, watermark: int) -> bool:
    """Give ``worker`` leave and samples up to ``watermark``, or as far as samples are left; False if none are."""
    share, left = max(1, job.generation.shares[worker.index]), left_over(job)
    count = watermark - worker.watermark
    if left is not None and left < count * share:
        count, share = (left // share, share) if left >= share else (1, left)
    if share == 0:
        return False
    first = worker.watermark + 1
    _add(worker.leases, Range(first=first, last=first + count - 1, position=job.samples.cursor, share=share))
    job.samples.cursor += count * share
    raise_to(worker, first + count - 1)
    return True


def raise_to(worker: Worker, watermark: int) -> None:
    """Leave up to ``watermark``."""
    worker.watermark = watermark
    worker.granted = max(worker.granted, watermark)


def use_up(worker: Worker) -> None:
    """Forget the leases of iterations that are done."""
    while worker.leases and worker.leases[0].last <= worker.done:
        del worker.leases[0]


def drop_after(job: Job, worker: Worker, iteration: int) -> None:
    """Take back what was leased for iterations after ``iteration``."""
    kept = []
    for lease in worker.leases:
        unused = lease.last - max(lease.first - 1, iteration, worker.done)
        job.samples.dropped += max(0, unused) * lease.share
        if lease.first <= iteration:
            last = min(lease.last, iteration)
            kept.append(Range(first=lease.first, last=last, position=lease.position, share=lease.share))
    worker.leases = kept


def _add(leases: list[Range], new: Range) -> None:
    """Append ``new``, as one with the last lease where it goes on without a gap."""
    if leases:
        last = leases[-1]
        end = last.position + (last.last - last.first + 1) * last.share
        if last.last + 1 == new.first and end == new.position and last.share == new.share:
            leases[-1] = Range(first=last.first, last=new.last, position=last.position, share=last.share)
            return
    leases.append(new)
