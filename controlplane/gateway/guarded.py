"""uvicorn's protocol classes with a guard, for its options ``--http`` and ``--ws``.

A request's head, its body, and the handshake of a websocket each have a deadline; see ``guard``.
"""

import json
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from controlplane.gateway.guard import Guard, Limits

RETRY_S = 5

_guards: "WeakKeyDictionary[Any, Guard]" = WeakKeyDictionary()
"""The guard of each uvicorn server, by its state object."""

_BUSY = json.dumps(
    {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": f"more connections or requests than this process takes at a time; try again in {RETRY_S} s",
    }
).encode()

_BUSY_REPLY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    b"retry-after: %d\r\ncontent-length: %d\r\n\r\n%s" % (RETRY_S, len(_BUSY), _BUSY)
)

_LARGE_REPLY = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

Stage = Literal["head", "body", "answer", "idle"]


class Http(HttpToolsProtocol):
    """One HTTP connection."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._guard = _guard_of(self.server_state, self.limits, self.loop)
        self._stage: Stage = "idle"
        self._since = self.loop.time()
        """When the current phase started."""
        self._received = 0
        """Bytes received in the current phase."""
        self._stalled_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        """A client connected."""
        super().connection_made(transport)
        if self._guard.enter(self):
            self._enter("head")
        else:
            transport.write(_BUSY_REPLY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected."""
        self._guard.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request; other bytes, such as an empty line, count as the start of one."""
        if self._stage == "idle":
            self._enter("head")
        self._received += len(data)
        super().data_received(data)
        if self._stage == "head" and self._received > self.limits.head_bytes and not self.transport.is_closing():
            self.transport.write(_LARGE_REPLY)
            self.transport.close()

    def on_headers_complete(self) -> None:
        """The headers are complete: the request starts, unless there are too many."""
        usual = self.app
        if self._guard.is_full:
            self.app = _busy
        try:
            super().on_headers_complete()
        finally:
            self.app = usual
        self._enter("body")

    def on_message_complete(self) -> None:
        """The body is complete."""
        super().on_message_complete()
        self._enter("idle" if self.cycle is not None and self.cycle.response_complete else "answer")

    def on_response_complete(self) -> None:
        """The response is sent; the rest of a body is still awaited."""
        super().on_response_complete()
        if self._stage == "answer":
            self._enter("idle")

    def handle_websocket_upgrade(self) -> None:
        """The connection is upgraded to a websocket."""
        self._guard.leave(self)
        super().handle_websocket_upgrade()

    def overdue(self, now: float, limits: Limits) -> bool:
        """Whether the client has passed the deadline of this phase."""
        waited = now - self._since
        if self._is_stalled(now, limits):
            return True
        match self._stage:
            case "head":
                return waited > limits.head_s
            case "body":
                if self.flow.read_paused:  # our side delays it
                    self._since, self._received = now, 0
                    return False
                return waited > limits.body_s + self._received / limits.bytes_per_s
            case "idle":
                return waited > max(limits.idle_s, self.timeout_keep_alive)
            case "answer":
                return False

    def rate(self, now: float) -> float:
        """Bytes per second in this phase."""
        return self._received / max(now - self._since, 1e-3)

    def abort(self) -> None:
        """Close the connection immediately."""
        self._guard.leave(self)
        self.transport.abort()

    def _enter(self, stage: Stage) -> None:
        self._stage, self._since, self._received = stage, self.loop.time(), 0
        match stage:
            case "head":
                self._guard.awaits_head(self)
            case "body":
                self._guard.awaits_body(self)
            case "answer":
                self._guard.answers(self)
            case "idle":
                self._guard.idles(self)

    def _is_stalled(self, now: float, limits: Limits) -> bool:
        """Whether written bytes are not being sent."""
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._stalled_since = None
        elif self._stalled_since is None:
            self._stalled_since = now
        return self._stalled_since is not None and now - self._stalled_since > limits.stalled_s


class WebSocket(WebSocketsSansIOProtocol):
    """One websocket."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        server_state = named.get("server_state") or arguments[1]
        self._guard = _guard_of(server_state, Http.limits, self.loop)
        self._since = self.loop.time()
        self._closing_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        """The headers were received; the connection is already counted as HTTP."""
        super().connection_made(transport)
        self._guard.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client disconnected."""
        self._guard.leave(self)
        super().connection_lost(exc)

    def overdue(self, now: float, limits: Limits) -> bool:
        """Whether its handshake or its close takes too long."""
        if not self.handshake_complete:
            return now - self._since > limits.handshake_s
        if not self.transport.is_closing():
            return False
        self._closing_since = self._closing_since or now
        return now - self._closing_since > limits.stalled_s

    def abort(self) -> None:
        """Close the connection immediately."""
        self._guard.leave(self)
        self.transport.abort()


def _guard_of(server_state: Any, limits: Limits, loop: Any) -> Guard:
    guard = _guards.get(server_state)
    if guard is None:
        guard = _guards[server_state] = Guard(limits, loop)
    return guard


async def _busy(scope: Any, receive: Any, send: Any) -> None:
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(_BUSY)).encode()),
        (b"retry-after", str(RETRY_S).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BUSY})
