import pytest
from kombu.exceptions import OperationalError
from kombu.simple import SimpleQueue

from controlplane.config.celery import app
from controlplane.runtime.broker_address import broker_url


def test_a_connection_that_is_lost_with_a_task_in_hand_is_closed_without_an_error(redis_url: str) -> None:
    connection = app.connection_for_read(broker_url(redis_url))
    channel = connection.default_channel
    queue = SimpleQueue(channel, "lost")
    queue.put({"job": 1})
    queue.put({"job": 2})
    begun, waiting = queue.get(timeout=5), queue.get(timeout=5)
    channel.connection.client = None  # so Celery leaves it where Redis went away
    channel._pool = channel._async_pool = None
    begun.ack()
    channel.close()
    assert channel.closed
    assert not waiting.acknowledged


def test_a_broker_that_is_away_is_retried_within_a_second() -> None:
    waits: list[float] = []

    def note(error: Exception, wait_s: float) -> None:
        waits.append(wait_s)

    with app.connection_for_read("redis://127.0.0.1:1/0") as connection, pytest.raises(OperationalError):
        connection.ensure_connection(note, 3)
    assert waits == pytest.approx([0.2, 0.4, 0.6])
