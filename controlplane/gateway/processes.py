"""The sockets of workers and servers: their messages are appended to the job's log, and nothing else happens here."""

import time
from secrets import token_hex
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from redis.exceptions import RedisError

from controlplane.core.events import ConnectionLost, Event, ServerHeard, WorkerHeard
from controlplane.gateway import close_codes
from controlplane.gateway.backpressure import Backpressure
from controlplane.gateway.close_codes import Refusal
from controlplane.gateway.connections import JobConnections, Peer
from controlplane.gateway.handshake import authenticated_peer, header, is_over, offers_our_protocol
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
    """The control socket of one process of a job."""

    role: ClassVar[Role]
    codec: ClassVar[Codec[Any]]

    @classmethod
    def as_asgi(cls) -> Any:
        """The ASGI application that serves one connection after another."""

        async def serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            await cls(scope).serve(scope, await Socket.accept(scope, receive, send))

        return serve

    def __init__(self, scope: dict[str, Any]) -> None:
        route = scope["url_route"]["kwargs"]
        instance = header(scope, "x-paceline-instance")
        self._backpressure = Backpressure()
        self.peer = Peer(job=route["job"], role=self.role, index=route["index"], instance=instance)

    async def serve(self, scope: dict[str, Any], socket: Socket) -> None:
        """Serve this connection until it ends."""
        try:
            refusal = await self._refusal(scope)
            if refusal is not None:
                await socket.send_close(refusal.code, refusal.message)
                return
            hub = await get_hub()
            async with hub.job_connections(self.peer.job) as connections:
                await self._serve(hub, connections, socket)
        except (RedisError, OSError) as error:
            logger.warning("process socket failed", job=self.peer.job, process=self.peer.name, why=str(error))
            await socket.send_close(close_codes.TRY_AGAIN)

    async def _refusal(self, scope: dict[str, Any]) -> Refusal | None:
        if not offers_our_protocol(scope):
            return Refusal(close_codes.MALFORMED)
        if (refusal := await self._authentication_failure(scope)) is not None:
            return refusal
        hub = await get_hub()
        await hub.caller.open()
        over, run_id = await hub.client.hmget(names.engine(self.peer.job), ["over", "run_id"])
        if over == b"0" and run_id == hub.caller.run_id.encode():
            return None
        gone = over == b"1" or (over is None and await is_over(self.peer.job))
        return Refusal(close_codes.JOB_OVER if gone else close_codes.TRY_AGAIN)

    async def _authentication_failure(self, scope: dict[str, Any]) -> Refusal | None:
        """Why the client is refused; None if it is authenticated."""
        return None if await authenticated_peer(scope, self.peer) else Refusal(close_codes.UNAUTHORISED)

    async def _serve(self, hub: Hub, connections: JobConnections, socket: Socket) -> None:
        peer, connection = self.peer, token_hex(8)
        open_connections = names.connections(peer.job)
        inbox: Inbox[Received] = Inbox(socket, self.codec)
        presence_hash, name = names.presence(peer.job), peer.name

        async def take(message: Message) -> None:
            received = inbox.open(message)
            if received is None:
                return
            hub.heartbeats.note(presence_hash, name, received)
            if not isinstance(received, Heartbeat) and self._admits(received, connections.appender.length, socket):
                connections.appender.append(self.event(received))
                await connections.appender.wait_for_capacity()

        connections.enter(peer, socket)  # first, so that a process known to be connected receives its frames
        try:
            await presence.connected(hub.client, open_connections, peer.name, connection)
            if number := await durable_number(hub.client, peer.job, peer.instance):
                socket.put(encode(Durable(number=number)), "durable")
            await socket.run(take, first_s=FIRST_S)
        finally:
            is_mine = connections.leave(peer, socket)
            if is_mine and await presence.disconnected(hub.client, open_connections, peer.name, connection):
                connections.appender.append(ConnectionLost(role=peer.role, index=peer.index, instance=peer.instance))
            await connections.appender.flushed()

    def _admits(self, received: Any, length: int, socket: Socket) -> bool:
        """Whether to append the message; its sender gets a rejection if not."""
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


class WorkerSocket(ProcessSocket[WorkerMessage]):
    """``/ws/worker/{job}/{rank}``."""

    role = "worker"
    codec = from_worker

    def event(self, received: Any) -> Event:
        """A message of a worker."""
        return WorkerHeard(rank=self.peer.index, instance=self.peer.instance, message=received)


class ServerSocket(ProcessSocket[ServerMessage]):
    """``/ws/server/{job}/{index}``."""

    role = "server"
    codec = from_server

    def event(self, received: Any) -> Event:
        """A message of a server."""
        return ServerHeard(index=self.peer.index, instance=self.peer.instance, message=received)
