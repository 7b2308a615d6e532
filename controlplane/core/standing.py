"""How far the counting workers are, so that a report costs the same however many there are."""

from controlplane.core.state import Job, Worker


def stand(worker: Worker) -> int:
    """The last iteration that it has finished or does not owe."""
    return max(worker.done, worker.from_iteration - 1)


def advance(job: Job, worker: Worker, iteration: int) -> None:
    """``worker`` has finished ``iteration``, or owes it no longer."""
    if stand(worker) <= job.completed < iteration:
        job.behind -= 1
    worker.done = iteration


def recount(job: Job) -> int:
    """Count anew who is behind; the last iteration that everybody has finished. Costs a look at every worker."""
    done = [stand(job.workers[rank]) for rank in job.roster]
    job.behind = sum(iteration <= job.completed for iteration in done)
    return min(done, default=job.completed)
