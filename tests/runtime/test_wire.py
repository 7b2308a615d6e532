"""The connection of the hot path: replies in order, errors to whoever asked, and back after a loss."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from controlplane.runtime import wire
from controlplane.runtime.redis import ASYNC_CONNECTIONS, Client, connect_async
from controlplane.runtime.wire import Caller


async def test_replies_come_in_the_order_of_calls(client: Client) -> None:
    caller = Caller()
    large = b"x" * 300_000
    calls = [caller.call("ECHO", large if number % 50 == 0 else str(number)) for number in range(200)]
    replies = await asyncio.gather(*calls)
    caller.close()
    assert replies == [large if number % 50 == 0 else b"%d" % number for number in range(200)]


async def test_every_kind_of_reply_arrives(client: Client) -> None:
    caller = Caller()
    assert await caller.call("EVAL", "return {1, 'two', false, {}}", 0) == [1, b"two", None, []]
    assert await caller.call("GET", "nothing") is None
    assert await caller.call("SET", "key", "value") == b"OK"
    caller.close()


async def test_an_error_is_raised_where_the_result_is_awaited(client: Client) -> None:
    caller = Caller()
    await caller.open()
    wrong, right = caller.begin("EVALSHA", "0" * 40, 0), caller.begin("PING")
    with pytest.raises(NoScriptError):
        await wrong
    assert await right == b"PONG"
    with pytest.raises(ResponseError, match="unknown command"):
        await caller.call("NONSENSE")
    caller.close()


async def test_a_call_whose_reply_was_lost_fails_and_the_next_one_goes_through(client: Client) -> None:
    caller = Caller()
    number = await caller.call("CLIENT", "ID")
    lost = caller.begin("BLPOP", "nothing", 0)
    await asyncio.sleep(0)
    client.execute_command("CLIENT", "KILL", "ID", number)
    with pytest.raises(ConnectionError, match="lost"):
        await lost
    with pytest.raises(ConnectionError, match="no connection"):
        await caller.begin("PING")
    assert await caller.call("PING") == b"PONG"
    caller.close()


async def test_a_connection_knows_the_run_id_of_redis(client: Client) -> None:
    caller = Caller()
    await caller.open()
    assert caller.run_id == client.info("server")["run_id"]
    caller.close()


async def test_a_connection_that_is_refused_is_given_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[wire.Wire] = []
    connect = wire.connect

    async def noted(*arguments: Any) -> wire.Wire:
        opened.append(await connect(*arguments))
        return opened[-1]

    monkeypatch.setattr(wire, "connect", noted)
    monkeypatch.setattr(wire, "greetings", lambda: [("AUTH", "somebody", "wrong")])
    caller = Caller()
    for _ in range(3):
        with pytest.raises(ResponseError):
            await caller.open()
    assert [each.transport is None or each.transport.is_closing() for each in opened] == [True] * 3


async def test_more_calls_at_once_than_connections_wait_for_their_turn(client: Client) -> None:
    before = len(client.client_list())
    many = connect_async()
    try:
        replies = await asyncio.gather(*(many.incr("calls") for _ in range(300)))
        assert sorted(replies) == list(range(1, 301))
        assert len(client.client_list()) <= before + ASYNC_CONNECTIONS
    finally:
        await many.aclose()
