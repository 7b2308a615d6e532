"""One Redis subscription connection per gateway process: each channel is subscribed to once, for all its listeners."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog
from redis.exceptions import ConnectionError, RedisError

from controlplane.runtime.redis import SOCKET_TIMEOUT_S
from controlplane.runtime.wire import Reply, Wire, connect, greetings

Take = Callable[[bytes], None]

RECONNECT_S: Final = 0.5
CONFIRM_S: Final = 5.0
PING_S: Final = 2.0

logger = structlog.get_logger(__name__)


class Subscriptions:
    """Passes each message to the subscribers of its channel. ``on_loss`` is called when messages may have been lost."""

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self._on_loss = on_loss
        self._takers: dict[bytes, set[Take]] = {}
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._wire: Wire | None = None
        self._lost = asyncio.Event()

    async def add(self, channel: str, take: Take) -> None:
        """Call ``take`` with every message published from now on; adding it twice has no effect.

        Raises:
            RedisError: if the subscription fails.
        """
        key = channel.encode()
        self._takers.setdefault(key, set()).add(take)
        try:
            if key not in self._confirmed:
                self._subscribe(key)
            await asyncio.wait_for(asyncio.shield(self._confirmed[key]), CONFIRM_S)
        except (RedisError, TimeoutError) as error:
            await self.drop(channel, take)
            raise ConnectionError(f"{channel}: cannot be subscribed to ({error})") from error

    async def drop(self, channel: str, take: Take) -> None:
        """Stop calling ``take``; removing the last subscriber ends the subscription."""
        key = channel.encode()
        takers = self._takers.get(key, set())
        takers.discard(take)
        if not takers and self._takers.pop(key, None) is not None:
            self._confirmed.pop(key, None)
            if self._wire is not None:
                self._wire.send("UNSUBSCRIBE", key)

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            ConnectionError: if Redis does not answer.
        """
        self._wire = wire = await connect(self._take, self._lose)
        for greeting in greetings():
            wire.send(*greeting)

    async def run(self) -> None:
        """Stay connected; after a loss, reconnect and subscribe to all channels again."""
        while True:
            try:
                if self._wire is None:
                    self._lost.clear()
                    await self.open()
                    for key in self._takers:
                        self._subscribe(key)
                await self._until_lost(PING_S)
            except RedisError as error:
                logger.warning("subscription lost", why=str(error))
                await asyncio.sleep(RECONNECT_S)

    def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.abort()

    async def _until_lost(self, seconds: float) -> None:
        """Wait for the end of the connection, with a ping every few seconds."""
        try:
            await asyncio.wait_for(self._lost.wait(), seconds)
        except TimeoutError:
            wire = self._wire
            if wire is not None:
                wire.send("PING")
                if time.monotonic() - wire.last_message_at > SOCKET_TIMEOUT_S:
                    wire.abort()

    def _subscribe(self, key: bytes) -> None:
        if self._wire is None:
            raise ConnectionError("Redis is out of reach")
        self._confirmed[key] = asyncio.get_running_loop().create_future()
        self._wire.send("SUBSCRIBE", key)

    def _take(self, reply: Reply) -> None:
        match reply:
            case [b"message", bytes(channel), bytes(data)]:
                for take in tuple(self._takers.get(channel, ())):
                    take(data)
            case [b"subscribe", bytes(channel), _] if (waiting := self._confirmed.get(channel)) and not waiting.done():
                waiting.set_result(None)
            case RedisError():
                logger.warning("subscription refused", why=str(reply))
                self.close()

    def _lose(self) -> None:
        self._wire = None
        self._lost.set()
        self._on_loss()
        confirmed, self._confirmed = self._confirmed, {}  # subscriptions are void: new callers must not wait for them
        for waiting in confirmed.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the connection to Redis was lost"))
                waiting.exception()  # there may be no waiter
