"""One accepted websocket: receiving, sending and closing.

Outgoing frames are queued in named slots, where a newer frame replaces an older unsent one. Orders are
complete, so a slow reader misses nothing that is still valid, and memory stays bounded.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from controlplane.gateway import close_codes
from controlplane.gateway.cancellation import end
from controlplane.gateway.rate_limiter import MACHINE_PER_S, RateLimiter
from controlplane.protocol import SUBPROTOCOL

Scope = Mapping[str, Any]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Take = Callable[[Message], Awaitable[None]]
Data = bytes | str | Callable[[], bytes]
"""A frame, or a function that makes it when it is sent."""

SLOW_S: Final = 5.0
"""A client that does not accept a frame for this long is too slow."""

FIRST_S: Final = 10.0
"""How long a machine's process may be connected without sending a message."""

CLOSE_S: Final = 10.0
"""How long a client has to accept the close frame."""

MOST_PENDING: Final = 1_000


class Socket:
    """A websocket with a separate sending task, so that a slow client does not delay others."""

    def __init__(self, receive: Receive, send: Send, *, per_s: float | None = None) -> None:
        self._receive, self._send = receive, send
        self._rate_limiter = RateLimiter(MACHINE_PER_S if per_s is None else per_s)
        self._pending: dict[str | int, Data] = {}
        self._sent: dict[str | int, Callable[[], None]] = {}
        self._unnamed = 0
        self._wake = asyncio.Event()
        self._code: int | None = None
        self._is_closed = False
        self._sending_since: float | None = None
        self._writer: asyncio.Task[None] | None = None

    @classmethod
    async def accept(
        cls, scope: Scope, receive: Receive, send: Send, *, per_s: float | None = None, header: str = ""
    ) -> "Socket":
        """Accept the handshake: a close code can only be sent on an accepted connection.

        ``header``: the name of one in the reply, with the value 1.
        """
        await receive()
        offered = SUBPROTOCOL in scope["subprotocols"]
        headers = [(header.lower().encode(), b"1")] if header else []
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None, "headers": headers})
        return cls(receive, send, per_s=per_s)

    def put(self, data: Data, slot: str = "", sent: Callable[[], None] | None = None) -> None:
        """Queue ``data``, replacing what is queued in the same slot; ``sent`` is called once it was sent."""
        if slot:
            self._pending[slot] = data
            if sent is not None:
                self._sent[slot] = sent
            elif self._sent:
                self._sent.pop(slot, None)
        else:
            self._unnamed += 1
            self._pending[self._unnamed] = data
        self._wake.set()

    def close(self, code: int) -> None:
        """Close the connection after the frames that are already queued."""
        if self._code is None:
            self._code = code
            self._wake.set()

    def close_if_slow(self, now: float) -> bool:
        """Close the connection immediately if the client is too slow; returns whether it was."""
        since = self._sending_since
        if (since is None or now - since < SLOW_S) and len(self._pending) < MOST_PENDING:
            return False
        self._code = self._code or close_codes.SLOW
        if self._writer is not None:
            self._writer.cancel()
        return True

    async def run(self, take: Take, *, first_s: float | None = None) -> None:
        """Pass every message to ``take`` until either side closes the connection; the first is due in ``first_s``."""
        self._writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read(take, first_s))
        tasks = (reader, self._writer)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            results = await end(*tasks)
        if self._code is not None:
            await self.send_close(self._code)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def send_close(self, code: int, message: bytes = b"") -> None:
        """Send ``message``, if any, and the close frame, once; with a deadline for clients that do not read."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError, TimeoutError):
            if message:
                await asyncio.wait_for(self._send(_message(message)), CLOSE_S)
            await asyncio.wait_for(self._send({"type": "websocket.close", "code": code}), CLOSE_S)

    async def _read(self, take: Take, first_s: float | None) -> None:
        while self._code is None:
            try:
                message = await asyncio.wait_for(self._receive(), first_s)
            except TimeoutError:
                self.close(close_codes.SLOW)
                break
            first_s = None
            if message["type"] == "websocket.disconnect":
                return
            await take(message)
            if self._rate_limiter.is_due():
                await self._pause()
        await asyncio.Event().wait()  # the writer closes the connection, after sending what was queued before

    async def _pause(self) -> None:
        """Throttle a client that sends too fast; only its own connection waits."""
        if pause_s := self._rate_limiter.pause_s(time.monotonic()):
            await asyncio.sleep(pause_s)
        if self._rate_limiter.floods:
            self.close(close_codes.FLOOD)

    async def _write(self) -> None:
        while self._code is None or self._pending:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                slot = next(iter(self._pending))
                data, sent = self._pending.pop(slot), self._sent.pop(slot, None)
                self._sending_since = time.monotonic()
                with suppress(OSError):  # the client is gone: the reader will notice
                    await self._send(_message(data() if callable(data) else data))
                self._sending_since = None
                if sent is not None:
                    sent()


def _message(data: bytes | str) -> Message:
    return {"type": "websocket.send", "bytes" if isinstance(data, bytes) else "text": data}
