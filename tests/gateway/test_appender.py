"""How messages share calls of the append script."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError

from controlplane.core.events import ConnectionLost, Event
from controlplane.gateway import appender as module
from controlplane.gateway.appender import Appender
from controlplane.runtime import log

HEAD = 8
"""Parts of a call before the events: the command, the script, its keys, and two arguments."""


class Redis:
    """A Redis whose replies a test gives."""

    run_id = ""

    def __init__(self) -> None:
        self.calls: list[list[Event]] = []
        self.open: list[asyncio.Future[Any]] = []

    def begin(self, *parts: Any) -> asyncio.Future[Any]:
        self.calls.append([log.decode_event(part) for part in parts[HEAD:]])
        self.open.append(asyncio.get_running_loop().create_future())
        return self.open[-1]

    async def answer(self, error: Exception | None = None) -> None:
        call = self.open.pop()
        if error is not None:
            call.set_exception(error)
        else:
            call.set_result([0, b"1-0", sum(map(len, self.calls))])
        await turns()


async def turns() -> None:
    """Let everything that is due happen."""
    for _ in range(5):
        await asyncio.sleep(0)


def event(number: int) -> Event:
    return ConnectionLost(role="worker", index=number, instance=f"w{number}.0.1")


def appending(failures: list[bool] | None = None, *, gathers: bool = False) -> tuple[Redis, Appender]:
    redis: Any = Redis()
    appender = Appender(redis, 7, (failures if failures is not None else []).append)
    appender.gathers = gathers
    return redis, appender


async def test_what_arrives_in_one_turn_or_during_a_call_is_one_call() -> None:
    redis, appender = appending()
    for number in (1, 2):
        appender.append(event(number))
    await turns()
    for number in (3, 4, 5):
        appender.append(event(number))
        await turns()
    assert redis.calls == [[event(1), event(2)]]
    await redis.answer()
    assert redis.calls[1:] == [[event(3), event(4), event(5)]]
    await redis.answer()
    await appender.flushed()
    assert (appender.length, len(redis.calls)) == (5, 2)


@pytest.mark.parametrize(("gathers", "calls"), [(False, [1, 1, 1]), (True, [1, 2])])
async def test_calls_of_many_processes_keep_their_distance(
    gathers: bool, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "APART_S", 0.5)
    redis, appender = appending(gathers=gathers)
    for number in (1, 2, 3):
        appender.append(event(number))
        await turns()
        if redis.open:
            await redis.answer()
    flushing = asyncio.create_task(appender.flushed())
    while not flushing.done():
        await asyncio.sleep(0.01)
        if redis.open:
            await redis.answer()
    assert list(map(len, redis.calls)) == calls


async def test_what_waits_is_dropped_where_a_call_fails_and_later_events_are_sent() -> None:
    failures: list[bool] = []
    redis, appender = appending(failures)
    appender.append(event(1))
    await turns()
    appender.append(event(2))
    await redis.answer(ConnectionError("the connection was lost"))
    appender.append(event(3))
    await turns()
    await redis.answer()
    await appender.flushed()
    assert (redis.calls, failures) == ([[event(1)], [event(3)]], [False])
