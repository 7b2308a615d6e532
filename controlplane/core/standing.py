"""How far the counting workers are, so that a report costs the same however many there are."""

from controlplane.core.records import Worker
from controlplane.core.state import Job


def stand(worker: Worker) -> int:
    """The last iteration that it has finished or does not owe."""
    done, owed_from = worker.done, worker.from_iteration
    return done if done >= owed_from else owed_from - 1


def advance(job: Job, worker: Worker, iteration: int) -> None:
    """``worker`` has finished ``iteration``, or owes it no longer."""
    if job.round.completed < iteration and stand(worker) <= job.round.completed:
        job.round.behind -= 1
    worker.done = iteration


def reached(job: Job) -> int:
    """The last iteration that everybody has finished. Costs a look at every worker."""
    workers = job.workers
    return min([stand(workers[rank]) for rank in job.generation.roster], default=job.round.completed)


def recount(job: Job) -> None:
    """Count anew who is behind. Costs a look at every worker."""
    workers, done = job.workers, job.round.completed
    job.round.behind = len([rank for rank in job.generation.roster if stand(workers[rank]) <= done])
