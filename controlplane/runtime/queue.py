"""Celery's queue of decisions: how a job gets into it, and whether anybody waits in it."""

from typing import Final

from celery import current_app

from controlplane.runtime.redis import Client

DECISIONS: Final = "decisions"
COORDINATE: Final = "controlplane.runtime.tasks.coordinate"
SCHEDULE: Final = "controlplane.runtime.tasks.schedule"


def enqueue(job: int) -> None:
    """Have some worker coordinate the job. Only whoever flipped it from idle to queued may call this."""
    current_app.send_task(COORDINATE, args=(job,), queue=DECISIONS)


def request_schedule() -> None:
    """Have the scheduler look soon; beat has it look each second in any case."""
    current_app.send_task(SCHEDULE, expires=2.0)


def is_empty(client: Client) -> bool:
    """Whether no other job waits for a thread: with prefetch disabled, what waits is in Redis' list."""
    return not client.execute_command("LLEN", DECISIONS)
