"""Makes every Redis client of ours, with the options that were found by breaking prototypes.

The protocol is explicit, since reply shapes of streams differ between versions of it. A read may block 1 ms to 2 s
(0 would block for ever) and the socket's time-out is longer than that. Nothing is retried here: a lost reply to an
append leaves two entries where it is repeated; whoever knows the message number may repeat it.
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

Part = bytes | str | int | float
Client = redis.Redis
AsyncClient = redis.asyncio.Redis


def redis_url() -> str:
    """The address of the configured Redis."""
    if not settings.REDIS_URL:
        raise RuntimeError(
            "REDIS_URL: found nothing, expected the address of a Redis; `manage.py up` starts one of its own"
        )
    return str(settings.REDIS_URL)


def connect() -> Client:
    """A client with one connection of its own, for one thread's loop."""
    return redis.Redis.from_url(redis_url(), single_connection_client=True, retry=Retry(NoBackoff(), 0), **_options())


def shared() -> Client:
    """The process's client for occasional calls from any thread."""
    return _pool(redis_url())


def connect_async() -> AsyncClient:
    """An asyncio client; close it with ``aclose``."""
    return redis.asyncio.Redis.from_url(redis_url(), retry=redis.asyncio.retry.Retry(NoBackoff(), 0), **_options())


def ask(client: Client, *parts: Part) -> Any:
    """The raw reply to a command, past the client's layers; for clients that have a connection of their own.

    Raises:
        RedisError: as the client would.
    """
    connection = client.connection
    assert connection is not None, "a client made by connect()"
    connection.send_packed_command([pack(*parts)], check_health=False)
    return connection.read_response()


def pack(*parts: Part) -> bytes:
    """One command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(parts)  # type: ignore[arg-type]  # its stub allows one part only
    return packed


def block_ms(seconds: float) -> int:
    """``seconds`` as a legal argument of a blocking read."""
    return max(1, min(MAX_BLOCK_MS, int(seconds * 1000)))


@cache
def _pool(url: str) -> Client:
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), **_options())


def _options() -> dict[str, Any]:
    return {"protocol": 2, "socket_timeout": SOCKET_TIMEOUT_S, "socket_connect_timeout": 3.0}
