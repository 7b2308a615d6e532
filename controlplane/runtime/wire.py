"""Asyncio Redis connections for the hot path: one for calls, one for subscriptions. Both reconnect after a loss.

redis-py does everything else. Its asyncio client takes 90 us of CPU per script call, this one 10 us; a worker's
complete round trip may take 300 us. Nothing is retried here: a call whose reply was lost may or may not have been
executed, and the caller gets the error.
"""

import asyncio
import re
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

import hiredis
from redis.connection import SSLConnection, parse_url
from redis.exceptions import ConnectionError, NoScriptError, RedisError, ResponseError

from controlplane.runtime.redis import SOCKET_TIMEOUT_S, Part, pack, redis_run_id, redis_url

CONNECT_S: Final = 3.0

Reply = bytes | int | None | RedisError | list["Reply"]


class Wire(asyncio.Protocol):
    """One connection: packed commands out, replies in."""

    def __init__(self, take: Callable[[Reply], None], lost: Callable[[], None]) -> None:
        self._take, self._lost = take, lost
        self._reader = hiredis.Reader(replyError=_error, protocolError=ConnectionError)
        self.transport: asyncio.Transport | None = None
        self.last_message_at = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.last_message_at = time.monotonic()
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._take(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self.transport = None
        self._lost()

    def send(self, *parts: Part) -> None:
        """Send a command.

        Raises:
            ConnectionError: if the connection is gone.
        """
        if self.transport is None:
            raise ConnectionError("the connection to Redis was lost")
        self.transport.write(pack(*parts))

    def abort(self) -> None:
        """End it immediately."""
        if self.transport is not None:
            self.transport.abort()


class Caller:
    """Pipelined calls; replies arrive in the order of calls."""

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._waiting: deque[tuple[float, asyncio.Future[Reply]]] = deque()
        self._opening = asyncio.Lock()
        self._reopening: asyncio.Future[None] | None = None
        self.run_id = ""
        """The run id of the connected Redis, as returned by scripts; empty before there is a connection."""

    async def call(self, *parts: Part) -> Reply:
        """The reply to a command.

        Raises:
            RedisError: the error that was replied, or that the connection was lost before the reply.
        """
        if self._wire is None:
            await self.open()
        return await self.begin(*parts)

    def begin(self, *parts: Part) -> asyncio.Future[Reply]:
        """Send a command; the future has its reply. Without a connection it fails, and one is opened."""
        if self._wire is None:
            failed: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            failed.set_exception(ConnectionError("there is no connection to Redis"))
            self._reopening = self._reopening or asyncio.ensure_future(self._reopen())
            return failed
        return self._ask(self._wire, *parts)

    async def open(self) -> None:
        """Connect, unless that is done.

        Raises:
            RedisError: if there is no Redis, or it refuses the connection.
        """
        async with self._opening:
            if self._wire is None:
                wire = await connect(self._take, self._lose)
                try:
                    for greeting in greetings():
                        await self._ask(wire, *greeting)
                    self.run_id = await asyncio.to_thread(redis_run_id) or _run_id_in(
                        await self._ask(wire, "INFO", "server")
                    )
                except BaseException:
                    wire.abort()
                    raise
                self._wire = wire

    def abort_if_stuck(self, now: float) -> None:
        """Close the connection if a reply is overdue for longer than any client waits."""
        if self._wire is not None and self._waiting and now - self._waiting[0][0] > SOCKET_TIMEOUT_S:
            self._wire.abort()

    def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.abort()

    def _ask(self, wire: Wire, *parts: Part) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        wire.send(*parts)
        self._waiting.append((time.monotonic(), reply))
        return reply

    async def _reopen(self) -> None:
        with suppress(RedisError):
            await self.open()
        self._reopening = None

    def _take(self, reply: Reply) -> None:
        _, waiting = self._waiting.popleft()
        if waiting.done():
            return
        if isinstance(reply, RedisError):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    def _lose(self) -> None:
        self._wire = None
        waiting, self._waiting = self._waiting, deque()
        for _, reply in waiting:
            if not reply.done():
                reply.set_exception(ConnectionError("the connection to Redis was lost before its reply"))


async def connect(take: Callable[[Reply], None], lost: Callable[[], None]) -> Wire:
    """A new connection to the configured Redis, before authentication.

    Raises:
        ConnectionError: if there is none.
    """
    options, loop = parse_url(redis_url()), asyncio.get_running_loop()
    wire = Wire(take, lost)
    try:
        async with asyncio.timeout(CONNECT_S):
            if "path" in options:
                await loop.create_unix_connection(lambda: wire, options["path"])
            else:
                host, port = options.get("host", "localhost"), options.get("port", 6379)
                await loop.create_connection(lambda: wire, host, port, ssl=_tls(options))
    except (OSError, TimeoutError) as error:
        raise ConnectionError(f"Redis cannot be reached: {error}") from error
    return wire


def greetings() -> list[tuple[Part, ...]]:
    """The first commands of a connection: authentication and database number."""
    options = parse_url(redis_url())
    commands: list[tuple[Part, ...]] = []
    if password := options.get("password"):
        commands.append(("AUTH", *([options["username"]] if options.get("username") else []), password))
    if database := options.get("db"):
        commands.append(("SELECT", database))
    return commands


def _run_id_in(info: Reply) -> str:
    """The run id in a Redis server's INFO."""
    found = re.search(rb"run_id:(\w+)", cast(bytes, info))
    assert found is not None, "INFO of Redis contains its run id"
    return found[1].decode()


def _error(text: str) -> RedisError:
    kind, _, rest = text.partition(" ")
    return NoScriptError(rest) if kind == "NOSCRIPT" else ResponseError(text)


def _tls(options: dict[str, Any]) -> ssl.SSLContext | None:
    if options.get("connection_class") is not SSLConnection:
        return None
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_certfile"):
        context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
