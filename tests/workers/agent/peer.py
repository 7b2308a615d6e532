"""A control plane's end of the control sockets: real websockets, decoded by the real codec, and nothing decided."""

import threading
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Any

import msgspec
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.codec import Codec, encode, from_agent, from_server, from_worker
from controlplane.protocol.messages import AgentHeartbeat, Heartbeat

DEADLINE_S = 60.0


class Session:
    """One connection that a client made."""

    def __init__(self, connection: ServerConnection, news: threading.Condition) -> None:
        assert connection.request is not None
        self.path = connection.request.path
        self.headers = connection.request.headers
        self.heard: list[Any] = []
        self.beats: list[Any] = []
        self.over = False
        self._connection, self._news = connection, news

    def send(self, message: msgspec.Struct) -> None:
        self._connection.send(encode(message))

    def send_raw(self, frame: bytes) -> None:
        self._connection.send(frame)

    def close(self, code: int = 1012, reason: str = "") -> None:
        self._connection.close(code, reason)

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

    def await_over(self) -> None:
        self._await(lambda: self.over, "the end of the connection")

    def converse(self) -> None:
        codecs: dict[str, Codec[Any]] = {"agent": from_agent, "worker": from_worker, "server": from_server}
        codec = codecs[self.path.split("/")[2]]
        try:
            for frame in self._connection:
                message = codec.decode(frame)  # type: ignore[arg-type]
                with self._news:
                    is_beat = isinstance(message, Heartbeat | AgentHeartbeat)
                    (self.beats if is_beat else self.heard).append(message)
                    self._news.notify_all()
        except ConnectionClosed:
            pass
        finally:
            with self._news:
                self.over = True
                self._news.notify_all()

    def _await(self, look: Callable[[], Any], what: str) -> Any:
        with self._news:
            found = self._news.wait_for(look, DEADLINE_S)
        assert found, f"{self.path}: no {what} within {DEADLINE_S} s; heard {self.heard}"
        return found


class ControlPeer:
    """Accepts everybody, or turns everybody away with ``refuse_with``."""

    def __init__(self, port: int = 0, *, refuse_with: HTTPStatus | None = None) -> None:
        self.sessions: list[Session] = []
        self.attempts = 0
        self.refuse_with = refuse_with
        self._news = threading.Condition()
        self._server: Server = serve(
            self._accept, "127.0.0.1", port, subprotocols=[Subprotocol(SUBPROTOCOL)], process_request=self._request
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

    def _accept(self, connection: ServerConnection) -> None:
        session = Session(connection, self._news)
        with self._news:
            self.sessions.append(session)
            self._news.notify_all()
        session.converse()
