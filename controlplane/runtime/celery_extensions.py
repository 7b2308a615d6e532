"""Extensions of Celery: the broker reconnects quickly and without limit, and a free thread fetches a task immediately.

Without prefetching the loop fetches tasks only while a thread is free. In Celery nothing wakes the loop when a thread
becomes free, so a task could wait for up to a second while threads are idle.
"""

from concurrent.futures import Future
from typing import Any, Final

from celery.app.amqp import AMQP
from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool
from kombu.asynchronous import get_event_loop
from kombu.connection import Connection
from kombu.transport.redis import Channel

RETRY_S: Final = 0.2
MAX_RETRY_S: Final = 1.0
"""Celery's own delay grows by 2 s per attempt up to 30 s, which is too long once Redis is back."""

# Tasks that were fetched but not started are found by `rescue`; restoring them needs the connection that was lost.
Channel.do_restore = False


class ReconnectingConnection(Connection):
    """Retries a lost connection within a second."""

    def ensure_connection(self, *arguments: Any, **options: Any) -> Any:
        """Return the connection once it is established."""
        soon = {"interval_start": RETRY_S, "interval_step": RETRY_S, "interval_max": MAX_RETRY_S}
        return super().ensure_connection(*arguments, **(soon | options))


class Broker(AMQP):
    """Makes Celery use ``ReconnectingConnection``."""

    Connection = ReconnectingConnection


class TaskPool(ThreadPool):
    """``worker_pool`` in the settings."""

    def on_apply(self, *args: Any, **kwargs: Any) -> ApplyResult:
        """Run one task."""
        result = super().on_apply(*args, **kwargs)
        result.f.add_done_callback(_wake_the_loop)
        return result


def _wake_the_loop(done: "Future[Any]") -> None:
    loop = get_event_loop()
    if loop is not None:
        loop.call_soon(_no_op)


def _no_op() -> None:
    """The callback only wakes the loop, which then fetches tasks."""
