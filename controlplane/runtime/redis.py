"""Creates all Redis clients, with the options that the live driver depends on.

The protocol version is explicit, since replies of streams differ between versions. A read may block for 1 ms to 2 s (0
would block forever), and the socket time-out is longer. Nothing is retried here: retrying an append after a lost reply
would add the entry twice. A caller that knows the message number may retry.
"""

from functools import cache
from typing import Any, Final

import hiredis
import redis
import redis.asyncio
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

MAX_BLOCK_MS: Final = 2_000
SOCKET_TIMEOUT_S: Final = MAX_BLOCK_MS / 1000 + 3.0
FAKE_RUN_ID: Final = "fakeredis"
"""fakeredis has no run id: it ends with the control plane that started it."""

ASYNC_CONNECTIONS: Final = 16

Part = bytes | str | int | float
Client = redis.Redis
AsyncClient = redis.asyncio.Redis


def redis_url() -> str:
    """The address of the configured Redis."""
    if not settings.REDIS_URL:
        raise RuntimeError(
            "REDIS_URL is not set; set it to the address of a Redis, or use `manage.py up`, which starts one"
        )
    return str(settings.REDIS_URL)


def connect() -> Client:
    """A client with a single connection, for one thread's loop."""
    return redis.Redis.from_url(redis_url(), single_connection_client=True, retry=Retry(NoBackoff(), 0), **_options())


def shared() -> Client:
    """The process's client for occasional calls from any thread."""
    return _pool(redis_url())


def connect_async() -> AsyncClient:
    """An asyncio client; close it with ``aclose``. If all its connections are busy, calls wait for one."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        redis_url(),
        max_connections=ASYNC_CONNECTIONS,
        timeout=SOCKET_TIMEOUT_S,
        retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        **_options(),
    )
    return redis.asyncio.Redis.from_pool(pool)


def ask(client: Client, *parts: Part) -> Any:
    """The raw reply to a command, past the client's layers; for clients that have their own connection.

    Raises:
        RedisError: as the client would.
    """
    send(client, pack(*parts))
    return read_reply(client)


def send(client: Client, packed: bytes) -> None:
    """Send packed commands at once; ``read_reply`` gives their replies, in order."""
    _own_connection(client).send_packed_command([packed], check_health=False)


def read_reply(client: Client) -> Any:
    """The next raw reply that is due."""
    return _own_connection(client).read_response()


def forget(client: Client) -> None:
    """Discard outstanding replies: the next command gets a new connection."""
    _own_connection(client).disconnect()


def refresh(client: Client) -> None:
    """If the server has closed the connection, discard it, so that the next command gets a new one and does not fail.

    There must be no outstanding replies, as between two tasks.
    """
    connection = _own_connection(client)
    if connection.is_connected:
        try:
            is_stale = connection.can_read(0)
        except redis.ConnectionError:
            is_stale = True
        if is_stale:
            connection.disconnect()


def _own_connection(client: Client) -> Any:
    assert client.connection is not None, "a client made by connect()"
    return client.connection


def pack(*parts: Part) -> bytes:
    """One command in wire format."""
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]  # its stub allows one part only
    return packed


def redis_run_id() -> str:
    """The run id to pass to scripts: empty, since a real Redis knows its own; fakeredis has none.

    A Redis that returns with another run id may have lost its latest writes.
    """
    return _redis_run_id(redis_url())


@cache
def _redis_run_id(url: str) -> str:
    try:
        return "" if "run_id" in _pool(url).info("server") else FAKE_RUN_ID
    except redis.ResponseError:
        return FAKE_RUN_ID


def block_ms(seconds: float) -> int:
    """``seconds`` as a legal argument of a blocking read."""
    return max(1, min(MAX_BLOCK_MS, int(seconds * 1000)))


@cache
def _pool(url: str) -> Client:
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_options())


def _options() -> dict[str, Any]:
    return {"protocol": 2, "socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": 3.0}
