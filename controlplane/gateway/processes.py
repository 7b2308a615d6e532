"""The control connections of workers and servers: appends their messages to the job's log, and nothing else.

Each process has its own websocket, or a channel of its machine's relay (``relay``), with the same messages.
"""

import time
from collections.abc import Callable
from functools import partial
from secrets import token_hex
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from redis.exceptions import RedisError

from controlplane.core.events import ConnectionLost, Event, ServerMessageReceived, WorkerMessageReceived
from controlplane.gateway import close_codes
from controlplane.gateway.backpressure import Backpressure
from controlplane.gateway.close_codes import Refusal
from controlplane.gateway.connections import JobConnections
from controlplane.gateway.handshake import Claim, is_over, offers_our_protocol, peer_refusal
from controlplane.gateway.hub import Hub, get_hub
from controlplane.gateway.inbox import Inbox
from controlplane.gateway.sockets import FIRST_S, Message, Receive, Send, Socket
from controlplane.protocol.codec import Codec, encode, from_server, from_worker
from controlplane.protocol.messages import Heartbeat, ServerMessage, WorkerMessage
from controlplane.protocol.orders import Durable, Rejection, Role
from controlplane.runtime import names, presence
from controlplane.runtime.durable import durable_number

Received = TypeVar("Received")

logger = structlog.get_logger(__name__)


class ProcessSocket(Generic[Received]):
    """The control connection of one process of a job."""

    role: ClassVar[Role]
    codec: ClassVar[Codec[Any]]

    @classmethod
    def as_asgi(cls) -> Any:
        """The ASGI application that serves one connection after another."""

        async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            socket = await Socket.accept(scope, receive, send)
            if offers_our_protocol(scope):
                await cls(Claim.of(scope, cls.role)).serve(socket)
            else:
                await socket.send_close(close_codes.MALFORMED)

        return serve

    def __init__(self, claim: Claim) -> None:
        self._backpressure = Backpressure()
        self.claim, self.peer = claim, claim.peer
        self.alive: Callable[[], None] = _ignore
        """Records that the process is alive."""

    async def serve(self, socket: Socket) -> None:
        """Serve this connection until it ends."""
        try:
            refusal = await self._refusal()
            if refusal is not None:
                await socket.send_close(refusal.code, refusal.message)
                return
            hub = await get_hub()
            async with hub.job_connections(self.peer.job) as connections:
                await self._serve(hub, connections, socket)
        except (RedisError, OSError) as error:
            logger.warning("process socket failed", job=self.peer.job, process=self.peer.name, why=str(error))
            await socket.send_close(close_codes.TRY_AGAIN)

    async def _refusal(self) -> Refusal | None:
        if (refusal := await self._authentication_failure()) is not None:
            return refusal
        hub = await get_hub()
        await hub.caller.open()
        over, run_id = await hub.client.hmget(names.engine(self.peer.job), ["over", "run_id"])
        if over == b"0" and run_id == hub.caller.run_id.encode():
            return None
        gone = over == b"1" or (over is None and await is_over(self.peer.job))
        return Refusal(close_codes.JOB_OVER if gone else close_codes.TRY_AGAIN)

    async def _authentication_failure(self) -> Refusal | None:
        """Why the client is refused; None if it is authenticated."""
        return await peer_refusal(self.claim)

    async def _serve(self, hub: Hub, connections: JobConnections, socket: Socket) -> None:
        peer, connection = self.peer, token_hex(8)
        open_connections = names.connections(peer.job)
        inbox: Inbox[Received] = Inbox(socket, self.codec)
        alive = partial(hub.heartbeats.note, names.presence(peer.job), peer.name)

        async def take(message: Message) -> None:
            received = inbox.open(message)
            if received is None:
                return
            self.alive = alive  # from the first message on
            alive()
            if not isinstance(received, Heartbeat) and self._admits(received, connections.appender.length, socket):
                connections.heard(self.peer, received)
                connections.appender.append(self.event(received))
                await connections.appender.wait_for_capacity()

        connections.enter(peer, socket)  # first, so that a process known to be connected receives its frames
        try:
            await presence.connected(hub.client, open_connections, peer.name, connection)
            if number := await durable_number(hub.client, peer.job, peer.instance):
                socket.put(encode(Durable(number=number)), "durable")
            await socket.run(take, first_s=FIRST_S)
        finally:
            self.alive = _ignore
            is_mine = connections.leave(peer, socket)
            if is_mine and await presence.disconnected(hub.client, open_connections, peer.name, connection):
                connections.appender.append(ConnectionLost(role=peer.role, index=peer.index, instance=peer.instance))
            await connections.appender.flushed()

    def _admits(self, received: Any, length: int, socket: Socket) -> bool:
        """Whether to append the message; if not, its sender gets a rejection."""
        now_s = time.monotonic()
        if self._backpressure.admits(received.number, length=length, now_s=now_s):
            return True
        if self._backpressure.sends_rejection(now_s):
            detail = f"{length} entries of the job's log are not in the database yet: resend in a second"
            rejection = Rejection(code="slow-down", detail=detail, number=self._backpressure.refused)
            socket.put(encode(rejection), "slow-down")
        return False

    def event(self, received: Any) -> Event:
        """The log event for a message."""
        raise NotImplementedError


def _ignore() -> None:
    """A process counts from its first message to the end of its connection."""


class WorkerSocket(ProcessSocket[WorkerMessage]):
    """``/ws/worker/{job}/{rank}``."""

    role = "worker"
    codec = from_worker

    def event(self, received: Any) -> Event:
        """The log event for a worker's message."""
        return WorkerMessageReceived(rank=self.peer.index, instance=self.peer.instance, message=received)


class ServerSocket(ProcessSocket[ServerMessage]):
    """``/ws/server/{job}/{index}``."""

    role = "server"
    codec = from_server

    def event(self, received: Any) -> Event:
        """The log event for a server's message."""
        return ServerMessageReceived(index=self.peer.index, instance=self.peer.instance, message=received)
