"""What the sockets of one gateway process share: connections to Redis, rooms of jobs, and a few background loops."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from socket import gethostname
from typing import Final
from weakref import WeakKeyDictionary

import structlog
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from controlplane.gateway import closing
from controlplane.gateway.audience import Audience
from controlplane.gateway.ending import end
from controlplane.gateway.rooms import Room
from controlplane.gateway.signs import Signs
from controlplane.gateway.sockets import Socket
from controlplane.gateway.subscriptions import Subscriptions
from controlplane.gateway.visitors import RECHECK_S, admitted
from controlplane.jobs.tokens import still_good
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import Rejection
from controlplane.runtime import names, presence
from controlplane.runtime.downtime import BEAT_S, Pulse, announce
from controlplane.runtime.presence import Load
from controlplane.runtime.redis import connect_async, shared
from controlplane.runtime.wire import Caller

FLUSH_S: Final = 0.25
WATCH_S: Final = 0.5
TOKEN_ENDED: Final = "the token has ended: it was revoked, or another took its place; start the script with the new one"

DURABLE_S: Final = 0.5
"""How often senders are told what they need not keep."""

logger = structlog.get_logger(__name__)


class Hub:
    """One per event loop."""

    def __init__(self) -> None:
        self.client = connect_async()
        self.caller = Caller()
        """For what is hot: appends."""
        self.signs = Signs()
        self.audience = Audience()
        self.ranks: dict[Socket, str] = {}
        """Sockets of attached ranks, each with the hash of the token that it came with."""
        self._rooms: dict[int, Room] = {}
        self._loose: set[Socket] = set()
        self._pulse = Pulse("gateway")
        self._subscriptions = Subscriptions(self.close_all)
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Listen, and begin the background loops."""
        _freeze()
        await self.caller.open()
        await self._subscriptions.open()
        self._loops = [
            asyncio.create_task(self._subscriptions.run()),
            asyncio.create_task(_repeat(FLUSH_S, lambda: self.signs.flush(self.client))),
            asyncio.create_task(_repeat(BEAT_S, self._beat)),
            asyncio.create_task(_repeat(WATCH_S, self._watch)),
            asyncio.create_task(_repeat(DURABLE_S, self._tell_durable)),
            asyncio.create_task(self.audience.run()),
            asyncio.create_task(_repeat(RECHECK_S, self._recheck)),
        ]
        await self._subscriptions.add(names.PAGES, self.audience.take)

    async def aclose(self) -> None:
        """End the loops and give the connections back."""
        await end(*self._loops)
        self._subscriptions.close()
        self.caller.close()
        await self.client.aclose()

    @asynccontextmanager
    async def room(self, job: int) -> AsyncIterator[Room]:
        """The job's room, subscribed to; it is closed when the last one leaves it."""
        room = self._rooms.setdefault(job, Room(self.caller, job))
        room.guests += 1
        try:
            await self._subscriptions.add(names.frames(job), room.deliver)
            await self._subscriptions.add(names.durable_moved(job), room.note_durable)
            yield room
        finally:
            room.guests -= 1
            if not room.guests and self._rooms.get(job) is room:
                del self._rooms[job]
                with suppress(RedisError):
                    await self._subscriptions.drop(names.frames(job), room.deliver)
                    await self._subscriptions.drop(names.durable_moved(job), room.note_durable)

    @asynccontextmanager
    async def channel(self, socket: Socket, channel: str, take: Callable[[bytes], None]) -> AsyncIterator[None]:
        """For one socket alone: every message of ``channel``."""
        self._loose.add(socket)
        try:
            await self._subscriptions.add(channel, take)
            yield
        finally:
            self._loose.discard(socket)
            with suppress(RedisError):
                await self._subscriptions.drop(channel, take)

    def close_all(self) -> None:
        """Messages may have been lost: have every machine come back and be told anew."""
        for socket in self._machines():
            socket.close(closing.TRY_AGAIN)

    async def _beat(self) -> None:
        """Say that deadlines count afresh before anybody can take this gateway for one that was here all the time."""
        await self.client.ping()
        if self._pulse.beat():
            jobs = await sync_to_async(announce, thread_sensitive=False)(self._pulse.who, shared())
            self._pulse.told()
            logger.info("control plane resumed", who=self._pulse.who, jobs=jobs)
        await presence.heard(self.client, names.GATEWAYS, [presence.Heard(name=gethostname(), age_ms=0, load=Load())])
        sockets = f"{len(self.audience.sockets)} {len(self._machines())}"
        await self.client.hset(names.GATEWAY_SOCKETS, gethostname(), sockets)

    async def _watch(self) -> None:
        now = time.monotonic()
        self.caller.abort_if_stuck(now)
        for socket in [*self._machines(), *self.audience.sockets]:
            socket.close_if_slow(now)

    async def _recheck(self) -> None:
        """Have only those listen on who may look at pages still, and ranks whose tokens have not ended."""
        if sessions := set(self.audience.sockets.values()):
            self.audience.keep(sessions, await database_sync_to_async(admitted)(sessions))
        if digests := set(self.ranks.values()):
            good = await database_sync_to_async(still_good)(digests)
            for socket, digest in self.ranks.items():
                if digest in digests and digest not in good:
                    socket.put(encode(Rejection(code="unauthorised", detail=TOKEN_ENDED)))
                    socket.close(closing.UNAUTHORISED)

    async def _tell_durable(self) -> None:
        for room in self._rooms.values():
            room.tell_durable()

    def _machines(self) -> list[Socket]:
        return [*self._loose, *(socket for room in self._rooms.values() for socket in room.sockets)]


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Hub]] = WeakKeyDictionary()


async def get_hub() -> Hub:
    """The hub of this event loop, started with the first socket."""
    loop = asyncio.get_running_loop()
    starting = _hubs.get(loop)
    if starting is None:
        starting = _hubs[loop] = loop.create_future()
        hub = Hub()
        try:
            await hub.start()
        except BaseException as error:
            del _hubs[loop]
            starting.set_exception(error)
            starting.exception()
            await hub.aclose()
            raise
        starting.set_result(hub)
    return await asyncio.shield(starting)


async def close_hub() -> None:
    """End this loop's hub, if it has one."""
    starting = _hubs.pop(asyncio.get_running_loop(), None)
    if starting is not None:
        await (await starting).aclose()


@cache
def _freeze() -> None:
    """What start-up has made stays: the garbage collector's looking through it again would hold up every socket."""
    gc.freeze()


async def _repeat(seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except (RedisError, OSError, DatabaseError) as error:
            logger.warning("gateway loop", step=getattr(step, "__name__", "flush"), why=str(error))
