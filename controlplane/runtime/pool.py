"""Celery's thread pool, extended to wake the loop that fetches tasks when a thread becomes free.

Without prefetching the loop fetches tasks only while a thread is free. In Celery nothing wakes the loop when a thread
becomes free, so a task could wait for up to a second beside idle threads.
"""

from concurrent.futures import Future
from typing import Any

from celery.concurrency.thread import ApplyResult
from celery.concurrency.thread import TaskPool as ThreadPool
from kombu.asynchronous import get_event_loop


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
        loop.call_soon(_look)


def _look() -> None:
    """Nothing to do: having been woken, the loop asks for tasks."""
