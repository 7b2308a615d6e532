"""Decodes and validates messages, within size limits.

A frame that is not accepted raises ``BadFrame`` with the close code for its sender; nothing else is raised.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from controlplane.protocol.base import UNREADABLE
from controlplane.protocol.machine_tests import PreflightOrder
from controlplane.protocol.messages import AgentMessage, RankMessage, ServerMessage, WorkerMessage
from controlplane.protocol.orders import (
    AgentOrders,
    CredentialIssued,
    Durable,
    Orders,
    Placement,
    Rejection,
    ServerOrders,
)

MAX_FRAME_BYTES = 256 * 1024
"""Largest control message in bytes; parameters are not sent on these connections."""

WorkerReply = Orders | Placement | Durable | Rejection
RankReply = Orders | Durable | Rejection
ServerReply = ServerOrders | Durable | Rejection
AgentReply = AgentOrders | CredentialIssued | PreflightOrder | Rejection

Message = TypeVar("Message")


class BadFrame(ValueError):
    """A frame was refused: ``code`` for programs, the message for users."""

    def __init__(self, code: Literal["malformed", "oversized"], detail: str) -> None:
        self.code: Literal["malformed", "oversized"] = code
        super().__init__(detail)


class Codec(Generic[Message]):
    """Decodes the messages of one direction of one socket, within the size limit, and encodes any."""

    def __init__(self, union: Any, *, limit: int = MAX_FRAME_BYTES) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(union)
        self._limit = limit

    def decode(self, frame: bytes | memoryview) -> Message:
        """The message in ``frame``.

        Raises:
            BadFrame: if it exceeds the limit, is not msgpack, or is not a message of the union.
        """
        if len(frame) > self._limit:
            raise BadFrame("oversized", f"message of {len(frame)} bytes, at most {self._limit} are accepted")
        try:
            return self._decoder.decode(frame)
        except UNREADABLE as error:
            raise BadFrame("malformed", f"not a message of this socket: {error}") from None


_encoder = msgspec.msgpack.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """The message as one msgpack frame."""
    return _encoder.encode(message)


from_worker: Codec[WorkerMessage] = Codec(WorkerMessage)
from_rank: Codec[RankMessage] = Codec(RankMessage)
from_server: Codec[ServerMessage] = Codec(ServerMessage)
from_agent: Codec[AgentMessage] = Codec(AgentMessage)
to_worker: Codec[WorkerReply] = Codec(WorkerReply, limit=64 * MAX_FRAME_BYTES)
to_rank: Codec[RankReply] = Codec(RankReply, limit=64 * MAX_FRAME_BYTES)
to_server: Codec[ServerReply] = Codec(ServerReply, limit=64 * MAX_FRAME_BYTES)
to_agent: Codec[AgentReply] = Codec(AgentReply, limit=64 * MAX_FRAME_BYTES)
