"""The frames on the local socket between a process and its agent: kind, length, payload. No I/O."""

import struct
from typing import Final

from controlplane.protocol.relay import MAX_RELAYED_BYTES, MAX_REPLY_BYTES

VARIABLE: Final = "PACELINE_RELAY"
"""The environment variable with the path of the agent's socket."""

OPEN: Final = 1
"""The first frame of a process, with an encoded ``Opening``; the agent replies with ``REPORTS_BEATS`` once it forwards
frames.
"""
FRAME: Final = 2
"""A message, as on a websocket."""
CLOSE: Final = 3
"""From the agent: the end of the connection, with a close code."""
BEAT: Final = 4
"""From the process; the agent sends it back, and reports each second to the control plane which processes sent one."""

REPORTS_BEATS: Final = b"beats"
"""Beats replace heartbeats. If the agent or its control plane is of an earlier release, the payload is empty."""

TO_AGENT: Final = MAX_RELAYED_BYTES
TO_PROCESS: Final = MAX_REPLY_BYTES
"""Maximum frame size in bytes, by direction."""

_HEAD: Final = struct.Struct("!BI")
_CODE: Final = struct.Struct("!H")


class BadFraming(ValueError):
    """Bytes that are not a frame of this protocol; nothing after them can be read."""


def packed(kind: int, payload: bytes = b"") -> bytes:
    """Encode one frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def packed_close(code: int) -> bytes:
    """Encode the end of the connection."""
    return packed(CLOSE, _CODE.pack(code))


def code_of(payload: bytes) -> int:
    """Decode the close code of a ``CLOSE`` frame."""
    if len(payload) != _CODE.size:
        raise BadFraming(f"a close code of {len(payload)} bytes, expected {_CODE.size}")
    return int(_CODE.unpack(payload)[0])


class Frames:
    """Decodes frames from a byte stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that ``data`` completes, as (kind, payload).

        Raises:
            BadFraming: if a kind is unknown, or a frame is too large.
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
