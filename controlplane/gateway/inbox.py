"""Decodes a machine's frames: they must be binary, within the size limit, and of this socket's message types."""

from typing import Any, Final, Generic, TypeVar

from controlplane.gateway import close_codes
from controlplane.gateway.sockets import Message, Socket
from controlplane.protocol.codec import BadFrame, Codec, encode
from controlplane.protocol.orders import Rejection

Received = TypeVar("Received")

BAD_IN_A_ROW: Final = 3
"""A sender of this many malformed frames in a row is disconnected."""


class Inbox(Generic[Received]):
    """Decodes the frames of one socket; an invalid frame is answered with a rejection."""

    def __init__(self, socket: Socket, codec: Codec[Received]) -> None:
        self._socket, self._codec = socket, codec
        self._bad = 0

    def open(self, message: Message) -> Received | None:
        """The message, or None if it was rejected."""
        frame: Any = message.get("bytes")
        try:
            if frame is None:
                raise BadFrame("malformed", "a text frame: messages are msgpack in binary frames")
            received = self._codec.decode(frame)
        except BadFrame as bad:
            self._refuse(bad)
            return None
        self._bad = 0
        return received

    def _refuse(self, bad: BadFrame) -> None:
        self._socket.put(encode(Rejection(code=bad.code, detail=str(bad))))
        self._bad += 1
        if bad.code == "oversized":
            self._socket.close(close_codes.OVERSIZED)
        elif self._bad >= BAD_IN_A_ROW:
            self._socket.close(close_codes.MALFORMED)
