"""A job in one line, as commands say it."""

from paceline.client.types import Job


def in_one_line(job: Job) -> str:
    """The present state of the job in words."""
    if job.waiting is not None:
        return job.waiting.sentence
    if job.awaited and not job.iteration:
        return job.awaited
    numbers = [f"iteration {job.iteration}"]
    numbers += [f"loss {job.loss:.3f}"] if job.loss is not None else []
    numbers += [f"accuracy {job.accuracy:.3f}"] if job.accuracy is not None else []
    return ", ".join([*numbers, f"{job.lost_share:.0%} lost"])
