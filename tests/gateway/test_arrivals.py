"""The messages of one websocket that its application has not read yet."""

import asyncio

import pytest

from controlplane.gateway.guarded import Arrivals


async def test_messages_are_read_in_order_also_if_several_come_before_the_reader_wakes() -> None:
    arrivals = Arrivals(asyncio.get_running_loop())
    reading = asyncio.create_task(arrivals.get())
    await asyncio.sleep(0)
    for message in ("a", "b", "c"):
        arrivals.put_nowait(message)
    assert [await reading, await arrivals.get(), await arrivals.get(), arrivals.empty()] == ["a", "b", "c", True]


async def test_what_is_there_is_read_without_waiting() -> None:
    arrivals = Arrivals(asyncio.get_running_loop())
    arrivals.put_nowait("a")
    assert not arrivals.empty()
    assert await arrivals.get() == "a"


async def test_a_reader_that_gives_up_loses_nothing() -> None:
    arrivals = Arrivals(asyncio.get_running_loop())
    reading = asyncio.create_task(arrivals.get())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    arrivals.put_nowait("a")
    assert await arrivals.get() == "a"


async def test_a_message_that_arrives_as_its_reader_gives_up_is_kept() -> None:
    arrivals = Arrivals(asyncio.get_running_loop())
    reading = asyncio.create_task(arrivals.get())
    await asyncio.sleep(0)
    arrivals.put_nowait("a")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await arrivals.get() == "a"
