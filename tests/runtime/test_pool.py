"""A thread that becomes free wakes the loop that fetches tasks."""

from typing import Any

import pytest

from controlplane.runtime import pool
from tests.support.waiting import eventually


class Loop:
    """Notes that it was woken."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.calls.append(callback)


def test_the_end_of_a_task_wakes_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    monkeypatch.setattr(pool, "get_event_loop", lambda: loop)
    threads, told = pool.TaskPool(limit=1), []
    try:
        threads.on_apply(lambda: 7, (), {}, callback=told.append).get(timeout=5)
        assert told == [7]
        eventually(lambda: loop.calls, what="the call that wakes the loop")
    finally:
        threads.on_stop()
