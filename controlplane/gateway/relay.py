"""The relays of machines, ``/ws/relay``: one connection for all processes of an agent, one channel per process.

A channel replaces the websocket in ``processes``: the process authenticates with its own key, and slots,
backpressure, rate limits and close codes are the same. The agent's credential only identifies the machine.
"""

import asyncio
from collections import deque
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from controlplane.gateway import close_codes
from controlplane.gateway.connections import Peer
from controlplane.gateway.handshake import Claim, admitted_agent
from controlplane.gateway.hub import Hub, get_hub
from controlplane.gateway.ownership import runs_on
from controlplane.gateway.processes import ProcessSocket, ServerSocket, WorkerSocket
from controlplane.gateway.rate_limiter import RELAY_PER_S
from controlplane.gateway.sockets import Message, Receive, Send, Socket
from controlplane.protocol.codec import BadFrame
from controlplane.protocol.messages import ProcessName
from controlplane.protocol.orders import Role
from controlplane.protocol.relay import (
    MAX_CHANNELS,
    MAX_REPLY_BYTES,
    TAKES_BEATS,
    Opening,
    Outgoing,
    from_relay,
    opening_of,
)

MOST_UNREAD_FRAMES: Final = 10_000
MOST_UNREAD_BYTES: Final = 4 * 1024 * 1024
"""Most unread bytes of one channel; above this the channel is closed."""

MOST_UNREAD_OF_RELAY: Final = 32 * 1024 * 1024
"""Most unread bytes of all channels of a relay; above this the relay is not read."""

FAILED: Final = 1011

CONVERSATIONS: Final[dict[Role, type[ProcessSocket[Any]]]] = {"worker": WorkerSocket, "server": ServerSocket}

logger = structlog.get_logger(__name__)


async def relay_socket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve one connection of an agent's relay to its end."""
    socket = await Socket.accept(scope, receive, send, per_s=RELAY_PER_S, header=TAKES_BEATS)
    admission = await admitted_agent(scope, socket)
    if admission is None:
        return
    agent = admission.agent.pk
    try:
        hub = await get_hub()
        async with hub.relay(socket, agent):
            await Relay(hub, agent, socket).serve()
    except (RedisError, OSError) as error:
        logger.warning("relay failed", agent=agent, why=str(error))
        await socket.send_close(close_codes.TRY_AGAIN)


class Channel:
    """One channel, with the interface that ``Socket`` expects of a websocket."""

    def __init__(self, number: int, relay: "Relay") -> None:
        self._number, self._relay = number, relay
        self._unread: deque[bytes] = deque()
        self.unread_bytes = 0
        self._is_over = False
        self._arrival: asyncio.Future[None] | None = None
        self.process: ProcessSocket[Any] | None = None
        """The conversation with its process, once it may have one."""
        self.socket = Socket(self._receive, self._send)

    def put(self, frame: bytes) -> None:
        """Queue a frame of the process."""
        if self._is_over:
            return
        self._unread.append(frame)
        self.unread_bytes += len(frame)
        self._relay.count_unread(len(frame))
        if len(self._unread) > MOST_UNREAD_FRAMES or self.unread_bytes > MOST_UNREAD_BYTES:
            self.socket.close(close_codes.FLOOD)
            self.end()
        self._notify()

    def end(self) -> None:
        """The process or its relay has disconnected: no more frames will follow the unread ones."""
        self._is_over = True
        self._notify()

    def _notify(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def _receive(self) -> Message:
        while not self._unread:
            if self._is_over:
                return {"type": "websocket.disconnect", "code": 1005}
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        frame = self._unread.popleft()
        self.unread_bytes -= len(frame)
        self._relay.count_unread(-len(frame))
        return {"type": "websocket.receive", "bytes": frame}

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self._relay.close_channel(self._number, message["code"])
        else:
            await self._relay.send(self._number, message["bytes"])


class Relay:
    """One connection of an agent's relay."""

    def __init__(self, hub: Hub, agent: int, socket: Socket) -> None:
        self._hub, self._agent, self._socket = hub, agent, socket
        self._channels: dict[int, Channel] = {}
        self._newest = 0
        """The highest number that a channel has had."""
        self._conversations: set[asyncio.Task[None]] = set()
        self._outgoing = Outgoing(MAX_REPLY_BYTES)
        self._room = asyncio.Event()
        """Cleared while a batch is being sent: frames wait in their channels' slots, and newer replace older."""
        self._room.set()
        self._unread_bytes = 0
        self._readable = asyncio.Event()
        self._readable.set()

    async def serve(self) -> None:
        """Serve the connection from the first batch to the last."""
        try:
            await self._socket.run(self._take)
        finally:
            self._room.set()
            for channel in self._channels.values():
                channel.end()
            if self._conversations:
                await asyncio.wait(self._conversations)

    async def send(self, channel: int, frame: bytes) -> None:
        """Add the frame to the next batch, which contains all frames of one turn of the event loop."""
        await self._room.wait()
        self._outgoing.add(channel, frame)
        self._wake()

    def close_channel(self, channel: int, code: int) -> None:
        """Notify the agent that the channel has ended."""
        self._outgoing.close(channel, code)
        self._wake()

    def count_unread(self, size: int) -> None:
        """Add to the number of unread bytes; ``size`` may be negative."""
        self._unread_bytes += size
        if self._unread_bytes > MOST_UNREAD_OF_RELAY:
            self._readable.clear()
        else:
            self._readable.set()

    def _wake(self) -> None:
        self._socket.put(self._next_batch, "batch", self._batch_sent)

    def _next_batch(self) -> bytes:
        self._room.clear()
        return self._outgoing.take()

    def _batch_sent(self) -> None:
        self._room.set()
        if self._outgoing:
            self._wake()

    async def _take(self, message: Message) -> None:
        frame: Any = message.get("bytes")
        try:
            if frame is None:
                raise BadFrame("malformed", "a text frame: batches are msgpack in binary frames")
            batch = from_relay.decode(frame)
            for number, opening in batch.opened:
                self._open(number, opening)
            for number, data in batch.frames:
                if (channel := self._find(number)) is not None:
                    channel.put(data)
            for number, _ in batch.closed:
                if (channel := self._find(number)) is not None:
                    channel.end()
            for number in batch.alive:
                if (channel := self._find(number)) is not None and channel.process is not None:
                    channel.process.alive()
        except BadFrame as bad:
            logger.warning("a relay was closed", agent=self._agent, why=str(bad))
            self._socket.close(close_codes.OVERSIZED if bad.code == "oversized" else close_codes.MALFORMED)
        await self._readable.wait()

    def _find(self, number: int) -> Channel | None:
        """The channel; None if it has ended, which the agent may not know yet."""
        if number > self._newest:
            raise BadFrame("malformed", f"channel {number} was never opened; the newest is {self._newest}")
        return self._channels.get(number)

    def _open(self, number: int, encoded: bytes) -> None:
        if number <= self._newest:
            raise BadFrame("malformed", f"channel {number} was opened before; expected one above {self._newest}")
        self._newest = number
        if len(self._channels) >= MAX_CHANNELS:
            self.close_channel(number, close_codes.FLOOD)
            return
        try:
            opening = opening_of.decode(encoded)
        except BadFrame:
            self.close_channel(number, close_codes.MALFORMED)
            return
        channel = self._channels[number] = Channel(number, self)
        conversation = asyncio.create_task(self._converse(number, channel, opening))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, number: int, channel: Channel, opening: Opening) -> None:
        """Serve one process over its channel, from the check of its key to its end."""
        peer = Peer(job=opening.job, role=opening.role, index=opening.index, instance=opening.instance)
        name = ProcessName(job=peer.job, role=peer.role, index=peer.index, instance=peer.instance)
        try:
            if await runs_on(self._hub, self._agent, name):
                channel.process = CONVERSATIONS[peer.role](Claim(peer=peer, credential=opening.key))
                await channel.process.serve(channel.socket)
            else:
                await channel.socket.send_close(close_codes.FOREIGN)
        except RedisError as error:
            logger.warning("channel failed", job=peer.job, process=peer.name, why=str(error))
            await channel.socket.send_close(close_codes.TRY_AGAIN)
        except Exception:
            logger.exception("channel failed", job=peer.job, process=peer.name)
            await channel.socket.send_close(FAILED)
        finally:
            del self._channels[number]
            self.count_unread(-channel.unread_bytes)
