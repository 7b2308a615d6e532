"""Messages between agent and gateway on ``/ws/relay``: the frames of a machine's processes, in batches.

A channel is the connection of one process instance, as on a separate websocket. The agent numbers channels upwards and
never reuses a number on a connection, so that late frames of a closed channel can be distinguished from hostile ones.
"""

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from controlplane.protocol.base import MAX_COUNT, Count32, Name, Positive32, Value, Word
from controlplane.protocol.codec import MAX_FRAME_BYTES, Codec
from controlplane.protocol.orders import Role

MAX_BATCH_BYTES: Final = 1024 * 1024
"""Maximum size of an agent's batch in bytes: the web process accepts no larger message."""

MAX_RELAYED_BYTES: Final = 2 * MAX_FRAME_BYTES
"""Largest frame of a process that its agent puts into a batch."""

MAX_REPLY_BYTES: Final = 64 * MAX_FRAME_BYTES
"""Largest frame for a process."""

MAX_CHANNELS: Final = 4_096
"""Channels of one connection that may be open at a time."""

TAKES_BEATS: Final = "X-Paceline-Takes-Beats"
"""Header of the gateway's handshake: it reads ``Batch.alive``. A control plane of an earlier release does not send it.
"""

Channel = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
Code = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class Opening(Value, frozen=True, kw_only=True):
    """Opens a channel: the process instance and its key."""

    job: Positive32
    role: Role
    index: Count32
    instance: Name
    key: Word


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Channels to open, then frames, then channels to close; and which processes are alive."""

    opened: list[tuple[Channel, bytes]]
    """Each with an encoded ``Opening``; the gateway opens none."""
    frames: list[tuple[Channel, bytes]]
    closed: list[tuple[Channel, Code]]
    """Each with its close code; 0: the process is gone."""
    alive: Annotated[list[Channel], msgspec.Meta(max_length=MAX_CHANNELS)] = []
    """Those whose processes are alive, which replaces their heartbeats; the gateway names none."""


from_relay: Codec[Batch] = Codec(Batch, limit=MAX_BATCH_BYTES)
to_relay: Codec[Batch] = Codec(Batch, limit=2 * MAX_REPLY_BYTES)
opening_of: Codec[Opening] = Codec(Opening)

_encoder = msgspec.msgpack.Encoder()


class Outgoing:
    """Collects the next batch. A batch is complete above ``most_bytes``; the rest is sent in the following one."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._opened: list[tuple[int, bytes]] = []
        self._frames: list[tuple[int, bytes]] = []
        self._closed: list[tuple[int, int]] = []
        self._alive: set[int] = set()
        self.added = 0
        """Total number of added items."""
        self.waiting_bytes = 0
        """Bytes of waiting frames."""

    def __bool__(self) -> bool:
        return bool(self._frames or self._opened or self._closed or self._alive)

    def open(self, channel: int, opening: bytes) -> None:
        """Open a channel."""
        self._opened.append((channel, opening))
        self.added += 1

    def add(self, channel: int, frame: bytes) -> None:
        """Send a frame on a channel."""
        self._frames.append((channel, frame))
        self.waiting_bytes += len(frame)
        self.added += 1

    def close(self, channel: int, code: int = 0) -> None:
        """Close a channel, after the frames that were added to it."""
        self._closed.append((channel, code))
        self.added += 1

    def alive(self, channels: Iterable[int]) -> None:
        """Say that the processes of these channels are alive."""
        self._alive.update(channels)
        self.added += 1

    def take(self) -> bytes:
        """The next batch, encoded. Channels are closed only by the last one of those that wait."""
        opened, self._opened = self._opened, []
        alive, self._alive = self._alive, set()
        if self.waiting_bytes <= self._most_bytes:
            frames, self._frames = self._frames, []
            self.waiting_bytes = 0
        else:
            frames = self._take_frames()
        closed: list[tuple[int, int]] = []
        if not self._frames:
            closed, self._closed = self._closed, []
        return _encoder.encode(Batch(opened, frames, closed, sorted(alive)))

    def clear(self) -> None:
        """Drop everything that waits."""
        self._opened, self._frames, self._closed, self._alive = [], [], [], set()
        self.waiting_bytes = 0

    def _take_frames(self) -> list[tuple[int, bytes]]:
        """Frames up to ``most_bytes``, or one that is larger."""
        size = count = 0
        for _, frame in self._frames:
            if count and size + len(frame) > self._most_bytes:
                break
            size, count = size + len(frame), count + 1
        taken, self._frames = self._frames[:count], self._frames[count:]
        self.waiting_bytes -= size
        return taken
