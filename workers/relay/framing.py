"""Frames on the local socket between a process and its agent: a kind, a length, and bytes. No I/O."""

import struct
from typing import Final

from controlplane.protocol.relay import MAX_RELAYED_BYTES, MAX_REPLY_BYTES

VARIABLE: Final = "PACELINE_RELAY"
"""The environment variable of a process that has the path of its agent's socket."""

OPEN: Final = 1
"""The first frame of a process, with an encoded ``Opening``; the agent's answer, empty, once it passes frames on."""
FRAME: Final = 2
"""A message, as on a websocket."""
CLOSE: Final = 3
"""From the agent: the end, with a close code."""
BEAT: Final = 4
"""From the process; the agent sends it back."""

TO_AGENT: Final = MAX_RELAYED_BYTES
TO_PROCESS: Final = MAX_REPLY_BYTES
"""Largest frames of each direction, in bytes."""

_HEAD: Final = struct.Struct("!BI")
_CODE: Final = struct.Struct("!H")


class BadFraming(ValueError):
    """Bytes that are no frame of the local socket; nothing behind them can be read."""


def packed(kind: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def packed_close(code: int) -> bytes:
    """The end of a conversation."""
    return packed(CLOSE, _CODE.pack(code))


def code_of(payload: bytes) -> int:
    """The close code in a ``CLOSE``."""
    if len(payload) != _CODE.size:
        raise BadFraming(f"a close code of {len(payload)} bytes, expected {_CODE.size}")
    return int(_CODE.unpack(payload)[0])


class Frames:
    """Frames from a stream of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The frames that ``data`` completes, as (kind, payload).

        Raises:
            BadFraming: if one is of no kind, or too large.
        """
        buffer = self._buffer
        buffer += data
        found, start = [], 0
        while len(buffer) - start >= _HEAD.size:
            kind, length = _HEAD.unpack_from(buffer, start)
            if not OPEN <= kind <= BEAT or length > self._most_bytes:
                raise BadFraming(f"a frame of kind {kind} with {length} bytes; at most {self._most_bytes} are accepted")
            end = start + _HEAD.size + length
            if len(buffer) < end:
                break
            found.append((kind, bytes(buffer[start + _HEAD.size : end])))
            start = end
        del buffer[:start]
        return found
