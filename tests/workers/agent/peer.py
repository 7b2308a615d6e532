"""A control plane's end of the control sockets: real websockets, decoded by the real codec, and nothing decided.

A channel of a relay is a session like any other.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Protocol

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.codec import Codec, encode, from_agent, from_server, from_worker
from controlplane.protocol.messages import AgentHeartbeat, Heartbeat
from controlplane.protocol.relay import TAKES_BEATS, Batch, from_relay, opening_of

DEADLINE_S = 60.0


class Wire(Protocol):
    """What carries a session."""

    def send(self, frame: bytes, /) -> None: ...

    def close(self, code: int, reason: str, /) -> None: ...


class Session:
    """One connection that a client made."""

    def __init__(self, path: str, headers: Mapping[str, str], wire: Wire, news: threading.Condition) -> None:
        self.path, self.headers = path, headers
        self.heard: list[Any] = []
        self.beats: list[Any] = []
        self.alive = 0
        """How often its relay has reported it to be alive."""
        self.over = False
        self.relayed = isinstance(wire, ChannelWire)
        codecs: dict[str, Codec[Any]] = {"agent": from_agent, "worker": from_worker, "server": from_server}
        self._codec = codecs[path.split("/")[2]]
        self._wire, self._news = wire, news

    def send(self, message: msgspec.Struct) -> None:
        self._wire.send(encode(message))

    def send_raw(self, frame: bytes) -> None:
        self._wire.send(frame)

    def close(self, code: int = 1012, reason: str = "") -> None:
        self._wire.close(code, reason)
        if self.relayed:  # a websocket's end is answered
            self.end()

    def await_heard(self, count: int) -> list[Any]:
        """The messages so far, once there are ``count``; heartbeats are in ``beats``."""
        self._await(lambda: len(self.heard) >= count, f"{count} messages")
        return self.heard

    def await_one(self, kind: type[Any], **fields: Any) -> Any:
        """The first message of that kind with those fields."""

        def look() -> Any:
            for message in self.heard:
                if isinstance(message, kind) and all(getattr(message, key) == value for key, value in fields.items()):
                    return message
            return None

        return self._await(look, f"{kind.__name__} {fields}")

    def await_beats(self, count: int) -> list[Any]:
        self._await(lambda: len(self.beats) >= count, f"{count} heartbeats")
        return self.beats

    def await_alive(self, count: int) -> None:
        self._await(lambda: self.alive >= count, f"{count} reports that it is alive")

    def await_over(self) -> None:
        self._await(lambda: self.over, "the end of the connection")

    def hear(self, frame: bytes) -> None:
        message = self._codec.decode(frame)
        with self._news:
            is_beat = isinstance(message, Heartbeat | AgentHeartbeat)
            (self.beats if is_beat else self.heard).append(message)
            self._news.notify_all()

    def is_alive(self) -> None:
        with self._news:
            self.alive += 1
            self._news.notify_all()

    def end(self) -> None:
        with self._news:
            self.over = True
            self._news.notify_all()

    def _await(self, look: Callable[[], Any], what: str) -> Any:
        with self._news:
            found = self._news.wait_for(look, DEADLINE_S)
        assert found, f"{self.path}: no {what} within {DEADLINE_S} s; heard {self.heard}"
        return found


class ChannelWire:
    """A channel of a relay."""

    def __init__(self, relay: ServerConnection, channel: int) -> None:
        self._relay, self._channel = relay, channel

    def send(self, frame: bytes) -> None:
        self._relay.send(encode(Batch([], [(self._channel, frame)], [])))

    def close(self, code: int, reason: str) -> None:
        self._relay.send(encode(Batch([], [], [(self._channel, code)])))


class ControlPeer:
    """Accepts everyone, or turns everyone away with ``refuse_with``."""

    def __init__(self, port: int = 0, *, refuse_with: HTTPStatus | None = None) -> None:
        self.sessions: list[Session] = []
        self.relays: list[ServerConnection] = []
        self.attempts = 0
        self.refuse_with = refuse_with
        self.takes_beats = True
        self._news = threading.Condition()
        self._server: Server = serve(
            self._accept,
            "127.0.0.1",
            port,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            process_request=self._request,
            process_response=self._respond,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port: int = self._server.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "ControlPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()

    def await_session(self, path: str, *, nth: int = 1) -> Session:
        """The ``nth`` connection to ``path``."""

        def look() -> Session | None:
            found = [session for session in self.sessions if session.path == path]
            return found[nth - 1] if len(found) >= nth else None

        with self._news:
            session = self._news.wait_for(look, DEADLINE_S)
        assert session, f"connection {nth} to {path} did not come within {DEADLINE_S} s"
        return session

    def await_attempts(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.attempts >= count, DEADLINE_S), f"{self.attempts} attempts"

    def _request(self, connection: ServerConnection, request: Request) -> Response | None:
        with self._news:
            self.attempts += 1
            self._news.notify_all()
        return None if self.refuse_with is None else connection.respond(self.refuse_with, "no\n")

    def _respond(self, connection: ServerConnection, request: Request, response: Response) -> None:
        if request.path == "/ws/relay" and self.takes_beats:
            response.headers[TAKES_BEATS] = "1"

    def _accept(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        path = connection.request.path
        with suppress(ConnectionClosed):
            if path == "/ws/relay":
                self._carry(connection)
            else:
                session = self._admit(Session(path, connection.request.headers, connection, self._news))
                try:
                    while True:
                        session.hear(connection.recv(decode=False))
                finally:
                    session.end()

    def _admit(self, session: Session) -> Session:
        with self._news:
            self.sessions.append(session)
            self._news.notify_all()
        return session

    def _carry(self, connection: ServerConnection) -> None:
        """Be the other end of a relay."""
        self.relays.append(connection)
        sessions: dict[int, Session] = {}
        try:
            while True:
                batch = from_relay.decode(connection.recv(decode=False))
                for channel, encoded in batch.opened:
                    opening = opening_of.decode(encoded)
                    headers = {"Authorization": f"Bearer {opening.key}", "X-Paceline-Instance": opening.instance}
                    path, wire = f"/ws/{opening.role}/{opening.job}/{opening.index}", ChannelWire(connection, channel)
                    sessions[channel] = self._admit(Session(path, headers, wire, self._news))
                for channel, frame in batch.frames:
                    sessions[channel].hear(frame)
                for channel, _ in batch.closed:
                    sessions[channel].end()
                for channel in batch.alive:
                    sessions[channel].is_alive()
        finally:
            for session in sessions.values():
                session.end()
