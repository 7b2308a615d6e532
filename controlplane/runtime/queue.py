"""Celery's queue of decisions: enqueues jobs, and checks whether any are waiting.

An unreachable queue is reported as an unreachable Redis, so that callers handle both in the same way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from celery import current_app
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError

from controlplane.runtime.redis import Client, ask

DECISIONS: Final = "decisions"
COORDINATE: Final = "controlplane.runtime.tasks.coordinate"
SCHEDULE: Final = "controlplane.runtime.tasks.schedule"


def enqueue(job: int) -> None:
    """Enqueue the job for coordination. Only the caller that changed it from idle to queued may do this.

    Raises:
        RedisError: if the queue is unreachable; the job is found again, as if its task had been lost.
    """
    with _as_redis_error():
        current_app.send_task(COORDINATE, args=(job,), queue=DECISIONS)


def request_schedule() -> None:
    """Request a run of the scheduler; beat requests one each second in any case.

    Raises:
        RedisError: if the queue is unreachable.
    """
    with _as_redis_error():
        current_app.send_task(SCHEDULE, expires=2.0)


def declare() -> None:
    """Bind Celery's queues again: an emptied Redis has lost the bindings, and messages would be dropped.

    Raises:
        RedisError: if Redis is unreachable.
    """
    with _as_redis_error(), current_app.connection_for_write() as connection:
        for queue in current_app.amqp.queues.values():
            queue(connection.default_channel).declare()


def is_empty(client: Client) -> bool:
    """Whether no other job waits for a thread: with prefetch disabled, waiting tasks are in a Redis list.

    ``client`` must have a single connection.
    """
    return not ask(client, "LLEN", DECISIONS)


@contextmanager
def _as_redis_error() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        raise ConnectionError(f"Celery's queue is out of reach: {error}") from error
