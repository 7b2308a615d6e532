"""One Redis subscription connection per gateway process: a channel is subscribed to once, whoever listens to it."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError, RedisError

from controlplane.runtime.redis import AsyncClient

Take = Callable[[bytes], None]

RECONNECT_S: Final = 0.5
CONFIRM_S: Final = 5.0

logger = structlog.get_logger(__name__)


class Subscriptions:
    """Hands each message to whoever takes its channel. ``on_silence`` is called when some may have been lost."""

    def __init__(self, client: AsyncClient, on_silence: Callable[[], None]) -> None:
        self._pubsub: PubSub = client.pubsub()
        self._on_silence = on_silence
        self._takers: dict[bytes, set[Take]] = {}
        self._confirmed: dict[bytes, asyncio.Future[None]] = {}
        self._opened = asyncio.Event()

    async def add(self, channel: str, take: Take) -> None:
        """Have ``take`` called with every message published from now on; adding it twice changes nothing.

        Raises:
            RedisError: if it cannot be subscribed to.
        """
        key = channel.encode()
        self._takers.setdefault(key, set()).add(take)
        confirmed = self._confirmed.get(key)
        try:
            if confirmed is None:
                confirmed = self._confirmed[key] = asyncio.get_running_loop().create_future()
                await self._pubsub.subscribe(channel)
                self._opened.set()
            await asyncio.wait_for(asyncio.shield(confirmed), CONFIRM_S)
        except (RedisError, OSError, TimeoutError) as error:
            self._takers.get(key, set()).discard(take)
            self._confirmed.pop(key, None)
            raise ConnectionError(f"{channel}: cannot be subscribed to ({error})") from error

    async def drop(self, channel: str, take: Take) -> None:
        """Have ``take`` called no longer; the last one to go ends the subscription."""
        key = channel.encode()
        takers = self._takers.get(key, set())
        takers.discard(take)
        if not takers and self._takers.pop(key, None) is not None:
            self._confirmed.pop(key, None)
            await self._pubsub.unsubscribe(channel)

    async def run(self) -> None:
        """Receive, for ever. redis-py subscribes again after a reconnect; what was published meanwhile is lost."""
        await self._opened.wait()  # the first subscription opens the connection
        while True:
            try:
                await self._receive()
            except (RedisError, OSError) as error:
                logger.warning("subscription lost", why=str(error))
                self._on_silence()
                await asyncio.sleep(RECONNECT_S)

    async def _receive(self) -> None:
        while True:
            message = await self._pubsub.get_message(timeout=None)
            if message is None:
                continue
            channel = message["channel"]
            if message["type"] == "message":
                for take in tuple(self._takers.get(channel, ())):
                    take(message["data"])
            elif message["type"] == "subscribe" and channel in self._confirmed:
                _confirm(self._confirmed[channel])

    async def aclose(self) -> None:
        """Give the connection back."""
        await self._pubsub.aclose()


def _confirm(waiting: asyncio.Future[None]) -> None:
    """After a reconnect, channels are confirmed again."""
    if not waiting.done():
        waiting.set_result(None)
