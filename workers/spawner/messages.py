"""Messages between an agent and its spawner, over a private socket pair.

Orders contain keys, which must appear on no command line and in no environment.
"""

import contextlib
import socket
import struct
from typing import Any, Generic, TypeVar

import msgspec

from controlplane.protocol.base import Positive, Value
from controlplane.protocol.messages import Line, ProcessName
from controlplane.protocol.orders import ProcessOrder
from workers.setup import Setup

_LENGTH = struct.Struct("!I")
Received = TypeVar("Received")


class Prepare(Value, frozen=True, kw_only=True, tag="prepare"):
    """The first message: import ``modules``, then be ready to run ``entry`` (``module:function``)."""

    entry: str
    modules: list[str]
    setup: Setup
    json_logs: bool = False


class Start(Value, frozen=True, kw_only=True, tag="start"):
    """Fork this process."""

    order: ProcessOrder


class Stop(Value, frozen=True, kw_only=True, tag="stop"):
    """End this process: SIGTERM, and SIGKILL after ``grace_s``."""

    process: ProcessName
    grace_s: float


class Warm(Value, frozen=True, kw_only=True, tag="warm"):
    """All imports are done; ``threads`` must be one for forks to be safe."""

    threads: int


class Started(Value, frozen=True, kw_only=True, tag="started"):
    """A process was forked."""

    process: ProcessName
    pid: Positive


class Ended(Value, frozen=True, kw_only=True, tag="ended"):
    """A process ended: exit status (negative: the signal) and the last lines of its standard error."""

    process: ProcessName
    status: int
    tail: str


class Wrote(Value, frozen=True, kw_only=True, tag="wrote"):
    """A process wrote these lines."""

    process: ProcessName
    lines: list[Line]


ToSpawner = Prepare | Start | Stop
FromSpawner = Warm | Started | Wrote | Ended


class Channel(Generic[Received]):
    """Messages over a stream socket, each with its length. One reader, one writer."""

    def __init__(self, sock: socket.socket, kind: Any) -> None:
        self._sock = sock
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(kind)
        self._buffer = bytearray()

    def fileno(self) -> int:
        """The file descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: msgspec.Struct) -> None:
        """Send one message. Raises OSError if the other side is gone."""
        body = msgspec.msgpack.encode(message)
        self._sock.sendall(_LENGTH.pack(len(body)) + body)

    def receive(self) -> list[Received]:
        """Return the messages that one read completes, perhaps none. Raises EOFError if the other side is gone."""
        try:
            piece = self._sock.recv(1 << 16)
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise EOFError("the other side of the channel is gone")
        self._buffer += piece
        return list(iter(self._next, None))

    def close(self) -> None:
        """Close the connection; a reader in another thread gets the end."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def abandon(self) -> None:
        """Close only this process's copy of the descriptor: the connection stays open in the process that it was
        inherited from.
        """
        self._sock.close()

    def _next(self) -> Received | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = self._decoder.decode(bytes(self._buffer[_LENGTH.size : end]))
        del self._buffer[:end]
        return message
