"""A control plane of attached ranks in a thread: keeps what it hears, says what a test has it say, dies and returns."""

import asyncio
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.codec import encode, from_rank
from controlplane.protocol.messages import Heartbeat, RankHello
from controlplane.protocol.orders import Durable, Orders
from tests.protocol.orders import orders

Answer = Callable[[int, Any], list[Any]]
"""What it says to a rank's message, beside that it is durable."""


class Plane:
    """Made around a test; ``stop`` and ``start`` are a crash and a return at the same address."""

    def __init__(self, answer: Answer | None = None, *, status: int | None = None) -> None:
        self.heard: list[tuple[int, Any]] = []
        """Rank and message, as often as it came."""
        self.headers: list[Headers] = []
        self.orders: Orders = orders(watermark=2**31 - 1)
        self.answer, self.status = answer or (lambda rank, message: []), status
        self.durable = True
        self.port = 0
        self._connections: dict[ServerConnection, int] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "Plane":
        self._run(self._start())
        return self

    def stop(self) -> None:
        self._run(self._stop())

    def say(self, message: Any) -> None:
        """To all ranks that are connected."""
        if isinstance(message, Orders):
            self.orders = message
        self._run(self._say(encode(message)))

    def close_all(self, code: int, reason: str) -> None:
        self._run(self._close_all(code, reason))

    def said(self, kind: type[Any], rank: int | None = None) -> list[Any]:
        """Messages of that kind, each once, by number."""
        found = {
            (who, message.number): message
            for who, message in list(self.heard)
            if isinstance(message, kind) and rank in (None, who)
        }
        return [found[key] for key in sorted(found)]

    def end(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "Plane":
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.end()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    async def _start(self) -> None:
        self._server = await serve(
            self._live,
            "127.0.0.1",
            self.port,
            subprotocols=[SUBPROTOCOL],
            process_request=self._admit,  # type: ignore[list-item]
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def _stop(self) -> None:
        if self._server is not None:
            for connection in list(self._connections):
                connection.transport.abort()
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _say(self, frame: bytes) -> None:
        for connection in list(self._connections):
            await connection.send(frame)

    async def _close_all(self, code: int, reason: str) -> None:
        for connection in list(self._connections):
            await connection.close(code, reason)

    async def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers)
        return connection.respond(HTTPStatus(self.status), "no\n") if self.status else None

    async def _live(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        rank = int(connection.request.path.rpartition("/")[2])
        self._connections[connection] = rank
        try:
            async for frame in connection:
                assert isinstance(frame, bytes)
                message = from_rank.decode(frame)
                if isinstance(message, Heartbeat):
                    continue
                self.heard.append((rank, message))
                replies = [self.orders] if isinstance(message, RankHello) else []
                replies += self.answer(rank, message)
                for reply in replies:
                    await connection.send(reply if isinstance(reply, bytes) else encode(reply))
                if self.durable:
                    await connection.send(encode(Durable(number=message.number)))
        finally:
            self._connections.pop(connection, None)
