"""What a machine's frames are held to: binary, within the size limit, messages of this socket."""

from typing import Any, Final, Generic, TypeVar

from controlplane.gateway import closing
from controlplane.gateway.sockets import Message, Socket
from controlplane.protocol.codec import BadFrame, Codec, encode
from controlplane.protocol.orders import Rejection

Said = TypeVar("Said")

BAD_IN_A_ROW: Final = 3
"""A sender of so many malformed frames does not speak our protocol."""


class Inbox(Generic[Said]):
    """Decodes one socket's frames; what cannot be accepted is answered, and changes nothing."""

    def __init__(self, socket: Socket, codec: Codec[Said]) -> None:
        self._socket, self._codec = socket, codec
        self._bad = 0

    def open(self, message: Message) -> Said | None:
        """What was said, or None."""
        frame: Any = message.get("bytes")
        try:
            if frame is None:
                raise BadFrame("malformed", "a text frame: messages are msgpack in binary frames")
            said = self._codec.decode(frame)
        except BadFrame as bad:
            self._refuse(bad)
            return None
        self._bad = 0
        return said

    def _refuse(self, bad: BadFrame) -> None:
        self._socket.put(encode(Rejection(code=bad.code, detail=str(bad))))
        self._bad += 1
        if bad.code == "oversized":
            self._socket.close(closing.OVERSIZED)
        elif self._bad >= BAD_IN_A_ROW:
            self._socket.close(closing.MALFORMED)
