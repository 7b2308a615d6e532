"""The control socket of a simulated process that survives every fault: messages are kept until they are durable.

It sends what ``protocol.outbox`` holds, as the sockets of real workers do (``workers.control``), but on an event loop
and without threads, so that one process can simulate many.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.live.simulated_agent import send_heartbeats
from benchmarks.live.timing import open_socket
from controlplane.protocol.codec import Codec, encode
from controlplane.protocol.messages import Heartbeat
from controlplane.protocol.orders import Durable, Rejection
from controlplane.protocol.outbox import Outbox

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
OPEN_S: Final = 5.0
SLOW_DOWN_S: Final = 1.0
FINAL_CODES: Final = (4401, 4409, 4410)
"""Close codes after which it does not reconnect."""

Build = Callable[[int], msgspec.Struct]


class ResilientSocket:
    """One process's messages and its connection to the control plane. ``on_reply`` is called with every reply."""

    def __init__(
        self, url: str, headers: Mapping[str, str], codec: Codec[Any], hello: Build, on_reply: Callable[[Any], None]
    ) -> None:
        self._url, self._headers, self._codec, self._hello, self._on_reply = url, headers, codec, hello, on_reply
        self._outbox: Outbox[msgspec.Struct] = Outbox()
        self._changed = asyncio.Event()
        self._socket: ClientConnection | None = None
        self.ended: int | None = None
        """The close code that ended it permanently."""
        self.rejections: list[Rejection] = []
        self.may_connect = asyncio.Event()
        """Cleared while its link is cut."""
        self.may_connect.set()

    @property
    def unacknowledged(self) -> int:
        """The number of messages that are not acknowledged as durable."""
        return self._outbox.unacknowledged

    def say(self, build: Build) -> int:
        """Number, keep and send a message; returns the number."""
        number = self._outbox.say(build)
        self._changed.set()
        return number

    def cut(self) -> None:
        """Break the connection without closing it."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def run(self) -> None:
        """Stay connected until one of ``FINAL_CODES`` ends it."""
        pause_s = FIRST_PAUSE_S
        while self.ended is None:
            await self.may_connect.wait()
            try:
                async with asyncio.timeout(OPEN_S):
                    socket = await open_socket(self._url, self._headers)
            except (OSError, TimeoutError, InvalidHandshake, EOFError):
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                continue
            received_any = await self._converse(socket)
            pause_s = FIRST_PAUSE_S if received_any else min(LONGEST_PAUSE_S, pause_s * 2)
            if self.ended is None:
                await asyncio.sleep(pause_s)

    async def _converse(self, socket: ClientConnection) -> bool:
        """Serve the connection until it ends; returns whether it received anything."""
        self._socket, received_any = socket, False
        if not self._outbox.last:
            self._outbox.say(self._hello)
        self._outbox.reopen()
        writing = asyncio.create_task(self._write(socket))
        beating = asyncio.create_task(send_heartbeats(socket, Heartbeat()))
        try:
            async for frame in socket:
                received_any = True
                self._take(self._codec.decode(frame if isinstance(frame, bytes) else frame.encode()))
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            writing.cancel()
            beating.cancel()
            await asyncio.gather(writing, beating, return_exceptions=True)
            socket.transport.abort()
        if socket.close_code in FINAL_CODES:
            self.ended = socket.close_code
        return received_any

    def _take(self, reply: Any) -> None:
        if isinstance(reply, Durable):
            self._outbox.acknowledge(reply.number)
        elif isinstance(reply, Rejection):
            self._rejected(reply)
        else:
            self._on_reply(reply)

    def observe_incarnation(self, incarnation: int) -> None:
        """Record that orders of that incarnation arrived."""
        self._outbox.observe_incarnation(incarnation)
        self._changed.set()

    def _say_again(self, number: int = 0) -> None:
        """Resend all messages from that number on that are not durable."""
        self._outbox.resend(number)
        self._changed.set()

    def _rejected(self, rejection: Rejection) -> None:
        self.rejections.append(rejection)
        if rejection.code == "out-of-order":
            self._say_again(rejection.number or 0)
        elif rejection.code == "slow-down":
            asyncio.get_running_loop().call_later(SLOW_DOWN_S, self._say_again)
        elif rejection.code == "stale":
            self.ended = 4409
            self.cut()

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            while (message := self._outbox.take()) is not None:
                await socket.send(encode(message))
            self._changed.clear()
            await self._changed.wait()
