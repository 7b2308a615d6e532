"""One connection to the control plane, used by ``socket``: a websocket, or a channel of the agent's relay."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, reconnect
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.codec import MAX_FRAME_BYTES

PING_S = 2.0
PING_TIMEOUT_S = 8.0
"""After this long without a response to a ping the peer is lost, even if its address still accepts bytes."""
BEAT_S = 0.5


class ConnectionEnded(Exception):
    """The connection is over: closed by the other side with a close code, or lost (no code)."""

    def __init__(self, code: int | None, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(f"it was closed: {reason or f'code {code}'}")


class Connection(Protocol):
    """One reader and one writer at a time, on different threads. Each method raises ``ConnectionEnded`` at the end."""

    @property
    def reports_beats(self) -> bool:
        """Whether the agent reports beats to the control plane, so that heartbeats need not be sent."""

    def recv(self) -> bytes:
        """The next frame."""

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def beat(self) -> None:
        """Called each ``BEAT_S`` by the writer, to show that this process is alive."""

    def close(self) -> None:
        """Close the connection after everything was sent; the reader receives the end. It may be called twice."""


class WebSocket:
    """A separate websocket of this process."""

    reports_beats: Final = False

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def recv(self) -> bytes:
        """See ``Connection``."""
        try:
            return self._connection.recv(decode=False)
        except ConnectionClosed as closed:
            raise self._ending(closed) from closed

    def send(self, frame: bytes) -> None:
        """See ``Connection``."""
        try:
            self._connection.send(frame)
        except ConnectionClosed as closed:
            raise self._ending(closed) from closed

    def beat(self) -> None:
        """Does nothing: the websocket sends pings."""

    def close(self) -> None:
        """See ``Connection``."""
        self._connection.close()

    def _ending(self, closed: ConnectionClosed) -> ConnectionEnded:
        connection = self._connection
        return ConnectionEnded(connection.close_code, connection.close_reason or str(closed))


@contextmanager
def websocket(plane: ControlPlane, path: str, headers: Mapping[str, str]) -> Iterator[WebSocket]:
    """A websocket, closed at the end of the block.

    Raises:
        OSError, websockets.exceptions.WebSocketException: if there is no connection, or the client is rejected.
    """
    with reconnect(
        plane.socket(path),
        additional_headers=dict(headers),
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        compression=None,
        max_size=64 * MAX_FRAME_BYTES,
        ping_interval=PING_S,
        ping_timeout=PING_TIMEOUT_S,
        close_timeout=2.0,
        proxy=None if plane.loopback else True,
    ) as connection:
        if connection.subprotocol != SUBPROTOCOL:
            raise InvalidHandshake(f"it does not speak {SUBPROTOCOL}")
        yield WebSocket(connection)
