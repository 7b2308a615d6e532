"""Shared state of the sockets of one gateway process: Redis connections, job connections, background loops."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakKeyDictionary

import structlog
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from controlplane.fleet.credentials import credentials_over
from controlplane.gateway import close_codes
from controlplane.gateway.broadcaster import Broadcaster
from controlplane.gateway.cancellation import end
from controlplane.gateway.connections import JobConnections
from controlplane.gateway.heartbeats import Heartbeats
from controlplane.gateway.page_sessions import RECHECK_S, admitted
from controlplane.gateway.process_credentials import processes_over
from controlplane.gateway.sockets import Socket
from controlplane.gateway.subscriptions import Subscriptions
from controlplane.jobs.tokens import still_good
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import Rejection
from controlplane.runtime import liveness, names, presence
from controlplane.runtime.downtime import BEAT_S, Pulse, announce
from controlplane.runtime.redis import connect_async, shared
from controlplane.runtime.wire import Caller

FLUSH_S: Final = 0.25
WATCH_S: Final = 0.5
TOKEN_ENDED: Final = "the token has ended: it was revoked, or another took its place; start the script with the new one"

TURNS: Final = 4
"""Turns of the event loop that are timed together."""

DURABLE_S: Final = 0.5
"""How often durable numbers are sent to processes that get no orders soon."""

logger = structlog.get_logger(__name__)


class Hub:
    """One per event loop."""

    def __init__(self) -> None:
        self.client = connect_async()
        self.caller = Caller()
        """For the hot path: appends."""
        self.heartbeats = Heartbeats()
        self.broadcaster = Broadcaster()
        self.pages_of: Counter[int] = Counter()
        """How many pages each user has open here."""
        self.ranks: dict[Socket, str] = {}
        """Sockets of attached ranks, each with the hash of its token."""
        self._agents: dict[Socket, int] = {}
        self._relays: set[Socket] = set()
        self._job_connections: dict[int, JobConnections] = {}
        self._loose: set[Socket] = set()
        self._name = liveness.where()
        """Host and process: two web processes of one host each have their own sockets."""
        self._pulse = Pulse("gateway")
        self._turn_s = 0.0
        """How long a turn of the event loop took lately."""
        self._was_well = time.monotonic()
        """When a turn last took no longer than it should."""
        self._subscriptions = Subscriptions(self.close_all)
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Subscribe and start the background loops."""
        await self.caller.open()
        await self._subscriptions.open()
        self._loops = [
            asyncio.create_task(self._subscriptions.run()),
            asyncio.create_task(_repeat(FLUSH_S, lambda: self.heartbeats.flush(self.caller))),
            asyncio.create_task(_repeat(BEAT_S, self._beat)),
            asyncio.create_task(_repeat(BEAT_S, self._time_turns)),
            asyncio.create_task(_repeat(WATCH_S, self._watch)),
            asyncio.create_task(_repeat(DURABLE_S, self._send_durable)),
            asyncio.create_task(self.broadcaster.run()),
            asyncio.create_task(_repeat(RECHECK_S, self._recheck)),
        ]
        await self._subscriptions.add(names.PAGES, self.broadcaster.take)

    async def aclose(self) -> None:
        """End the loops and close the connections."""
        await end(*self._loops)
        self._subscriptions.close()
        self.caller.close()
        await self.client.aclose()

    @asynccontextmanager
    async def job_connections(self, job: int) -> AsyncIterator[JobConnections]:
        """The job's connections, with its channels subscribed to until the last user leaves."""
        connections = self._job_connections.setdefault(job, JobConnections(self.caller, job))
        connections.users += 1
        try:
            await self._subscriptions.add(names.frames(job), connections.deliver)
            await self._subscriptions.add(names.durable_moved(job), connections.note_durable)
            yield connections
        finally:
            connections.users -= 1
            if not connections.users and self._job_connections.get(job) is connections:
                del self._job_connections[job]
                with suppress(RedisError):
                    await self._subscriptions.drop(names.frames(job), connections.deliver)
                    await self._subscriptions.drop(names.durable_moved(job), connections.note_durable)

    @asynccontextmanager
    async def channel(self, socket: Socket, channel: str, take: Callable[[bytes], None]) -> AsyncIterator[None]:
        """Call ``take`` with every message of ``channel``, for one socket."""
        self._loose.add(socket)
        try:
            await self._subscriptions.add(channel, take)
            yield
        finally:
            self._loose.discard(socket)
            with suppress(RedisError):
                await self._subscriptions.drop(channel, take)

    @asynccontextmanager
    async def agent(self, socket: Socket, agent: int) -> AsyncIterator[None]:
        """Register the agent's connection, which ends when its credential expires."""
        self._agents[socket] = agent
        try:
            yield
        finally:
            del self._agents[socket]

    @asynccontextmanager
    async def relay(self, socket: Socket, agent: int) -> AsyncIterator[None]:
        """Register a relay of the agent; it ends as the agent's connection does, or if the machine does not read."""
        self._relays.add(socket)
        try:
            async with self.agent(socket, agent):
                yield
        finally:
            self._relays.discard(socket)

    def close_all(self) -> None:
        """Close all connections after published messages may have been lost: machines reconnect for their orders."""
        for socket in self._machines():
            socket.close(close_codes.TRY_AGAIN)

    async def _beat(self) -> None:
        """Announce that deadlines restart, before this gateway counts as continuously present.

        Until then those that have ended stay known: while a gateway is missing, silence is excused.
        """
        await self.client.ping()
        if self._pulse.beat():
            jobs = await sync_to_async(announce, thread_sensitive=False)(self._pulse.process, shared())
            await sync_to_async(presence.gateway_begins, thread_sensitive=False)(shared())
            self._pulse.mark_reported()
            logger.info("control plane resumed", who=self._pulse.process, jobs=jobs)
        load = {presence.TURN: self._turn_s, presence.OVERLOADED: time.monotonic() - self._was_well}
        beat = presence.ReceivedHeartbeat(name=self._name, age_ms=0, load=load)
        await presence.record_heartbeats(self.caller, names.GATEWAYS, [beat])
        sockets = f"{len(self.broadcaster.sockets)} {len(self._machines())}"
        await self.client.hset(names.GATEWAY_SOCKETS, self._name, sockets)

    async def _time_turns(self) -> None:
        """Apart from the heartbeat, which must not wait for it."""
        self._turn_s = await turn_s()
        if self._turn_s <= presence.MOST_TURN_S:
            self._was_well = time.monotonic()

    async def _watch(self) -> None:
        now = time.monotonic()
        self.caller.abort_if_stuck(now)
        for socket in [*self._machines(), *self._relays, *self.broadcaster.sockets]:
            socket.close_if_slow(now)

    async def _recheck(self) -> None:
        """Close sockets with an ended session, a revoked rank token, or an expired credential of their machine."""
        if sessions := set(self.broadcaster.sockets.values()):
            self.broadcaster.keep(sessions, await database_sync_to_async(admitted)(sessions))
        if digests := set(self.ranks.values()):
            good = await database_sync_to_async(still_good)(digests)
            for socket, digest in self.ranks.items():
                if digest in digests and digest not in good:
                    dismiss(socket, TOKEN_ENDED)
        if agents := set(self._agents.values()):
            over = await database_sync_to_async(credentials_over)(agents)
            for socket, agent in self._agents.items():
                if agent in over:
                    logger.warning("a connection was ended with its credential", agent=agent, why=over[agent])
                    if socket in self._relays:  # it carries several processes; each is closed below
                        socket.close(close_codes.UNAUTHORISED)
                    else:
                        dismiss(socket, over[agent])
        if jobs := set(self._job_connections):
            for peer, why in (await database_sync_to_async(processes_over)(jobs)).items():
                connections = self._job_connections.get(peer.job)
                if connections is not None and (process := connections.socket_of(peer)) is not None:
                    logger.warning("a process's connection was ended", job=peer.job, process=peer.name, why=why)
                    dismiss(process, why)

    async def _send_durable(self) -> None:
        for connections in self._job_connections.values():
            connections.send_durable()

    def _machines(self) -> list[Socket]:
        return [
            *self._loose,
            *(socket for connections in self._job_connections.values() for socket in connections.sockets),
        ]


async def turn_s() -> float:
    """How long a turn of the event loop takes now, in seconds."""
    began = time.monotonic()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return (time.monotonic() - began) / TURNS


def dismiss(socket: Socket, why: str) -> None:
    """Close the connection of a machine or process that may not stay, with the reason."""
    socket.put(encode(Rejection(code="unauthorised", detail=why)))
    socket.close(close_codes.UNAUTHORISED)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Hub]] = WeakKeyDictionary()


async def get_hub() -> Hub:
    """The hub of this event loop, started by the first socket."""
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
    """Close the hub of this event loop, if any."""
    starting = _hubs.pop(asyncio.get_running_loop(), None)
    if starting is not None:
        await (await starting).aclose()


async def _repeat(seconds: float, step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            await step()
        except (RedisError, OSError, DatabaseError) as error:
            logger.warning("gateway loop", step=getattr(step, "__name__", "flush"), why=str(error))
