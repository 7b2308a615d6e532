"""How tasks are fetched: by whoever has a free thread, and a thread that becomes free wakes the loop that fetches."""

from typing import Any

import pytest

from controlplane.config.celery import app
from controlplane.runtime import celery_extensions, tasks
from tests.support.waiting import eventually


class Loop:
    """Notes that it was woken."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.calls.append(callback)


def test_the_end_of_a_task_wakes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    monkeypatch.setattr(celery_extensions, "get_event_loop", lambda: loop)
    threads, told = celery_extensions.TaskPool(limit=1), []
    try:
        threads.on_apply(lambda: 7, (), {}, callback=told.append).get(timeout=5)
        assert told == [7]
        eventually(lambda: loop.calls, what="the call that wakes the loop")
    finally:
        threads.on_stop()


def test_decisions_have_a_queue_whose_tasks_no_one_fetches_before_a_thread_is_free() -> None:
    told = app.conf
    assert (told.worker_disable_prefetch, told.worker_pool) == (True, "controlplane.runtime.celery_extensions:TaskPool")
    assert not told.task_acks_late, "what a crash interrupts is found again by beat"
    assert app.amqp.router.route({}, tasks.coordinate.name)["queue"].name == "decisions"
