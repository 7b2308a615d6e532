"""A process's connection to the control plane through its agent."""

import contextlib
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from controlplane.protocol.codec import encode
from controlplane.protocol.orders import ProcessOrder
from controlplane.protocol.relay import Opening
from workers.control.connection import ConnectionEnded
from workers.relay.framing import (
    BEAT,
    CLOSE,
    FRAME,
    OPEN,
    REPORTS_BEATS,
    TO_PROCESS,
    BadFraming,
    Frames,
    code_of,
    packed,
)

OPEN_S: Final = 1.0
"""Time limit of the agent's reply: it may delay a process for half of that while it connects itself."""

SILENT_S: Final = 1.5
"""An agent that does not answer heartbeats for this long hangs. The process then reconnects directly, before the
control plane declares it lost, 4 s after its agent last reported it alive.
"""

LOOK_S: Final = 0.25
"""Interval of checks whether it hangs, while nothing is received."""

_PIECE: Final = 1 << 16


class NoRelay(Exception):
    """The agent cannot forward for this process now; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRoute:
    """The address of the agent's socket, and the process's opening message. It contains the key: never print it."""

    path: Path
    opening: bytes = field(repr=False)

    @classmethod
    def of(cls, order: ProcessOrder, path: Path) -> Self:
        """The route of the process of ``order``."""
        opening = Opening(job=order.job, role=order.role, index=order.index, instance=order.instance, key=order.key)
        return cls(path=path, opening=encode(opening))


class LocalConnection:
    """A channel of the agent's relay."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._reading = stream.dup()
        """The same socket, with its own timeout."""
        self._unanswered_s: float | None = None
        """When the oldest unanswered heartbeat was sent. Without one, no answer is due however long the agent is
        silent: a process that computes may be late itself.
        """
        self._frames = Frames(TO_PROCESS)
        self._received: deque[bytes] = deque()
        self._ending: ConnectionEnded | None = None
        self._is_open = False
        self.reports_beats = False
        """See ``Connection``."""

    @classmethod
    def open(cls, route: LocalRoute) -> Self:
        """Connect to the agent.

        Raises:
            NoRelay: if there is no agent, or it is not connected to the control plane.
        """
        stream = socket.socket(socket.AF_UNIX)
        connection = cls(stream)
        try:
            for each in (stream, connection._reading):
                each.settimeout(OPEN_S)
            stream.connect(str(route.path))
            stream.sendall(packed(OPEN, route.opening))
            while not connection._is_open:
                connection._read()
        except (OSError, ConnectionEnded) as error:
            connection.release()
            raise NoRelay(str(error) or type(error).__name__) from error
        stream.settimeout(SILENT_S)
        connection._reading.settimeout(LOOK_S)
        return connection

    def recv(self) -> bytes:
        """The next frame."""
        while not self._received:
            self._read()
        return self._received.popleft()

    def send(self, frame: bytes) -> None:
        """Send a frame."""
        self._write(packed(FRAME, frame))

    def beat(self) -> None:
        """See ``Connection``; the agent answers it."""
        if self._unanswered_s is None:
            self._unanswered_s = time.monotonic()
        self._write(packed(BEAT))

    def close(self) -> None:
        """Close the connection after everything was sent."""
        with contextlib.suppress(OSError):  # it has ended
            self._stream.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Close it, and release its descriptor."""
        self.close()
        self._stream.close()
        self._reading.close()

    def _read(self) -> None:
        if self._ending is not None:
            raise self._ending
        try:
            data = self._reading.recv(_PIECE)
        except TimeoutError:
            self._see_silence()
            return
        except OSError as error:
            raise ConnectionEnded(None, str(error)) from None
        if not data:
            raise ConnectionEnded(None, "the agent is gone")
        try:
            for kind, payload in self._frames.feed(data):
                self._take(kind, payload)
        except BadFraming as error:
            raise ConnectionEnded(None, str(error)) from None

    def _see_silence(self) -> None:
        if not self._is_open:
            raise ConnectionEnded(None, f"the agent did not answer for {OPEN_S:g} s")
        if self._unanswered_s is not None and (silent_s := time.monotonic() - self._unanswered_s) >= SILENT_S:
            raise ConnectionEnded(None, f"the agent did not answer for {silent_s:.1f} s")

    def _take(self, kind: int, payload: bytes) -> None:
        if kind == FRAME:
            self._received.append(payload)
        elif kind == OPEN:
            self._is_open, self.reports_beats = True, payload == REPORTS_BEATS
        elif kind == BEAT:
            self._unanswered_s = None
        elif kind == CLOSE:
            self._ending = ConnectionEnded(code_of(payload), "")
            if not self._is_open:
                raise self._ending

    def _write(self, data: bytes) -> None:
        try:
            self._stream.sendall(data)
        except OSError as error:
            raise ConnectionEnded(None, str(error) or type(error).__name__) from None
