"""Emulates a slower link: a process sends and receives at the given speed in each direction.

All connections of a server, or of a worker, share it, as they would share its network card. It works in user space, so
it needs no privileges and no kernel module: after each chunk it sleeps for the chunk's emulated time.
"""

import socket
import threading
import time
from collections.abc import Callable
from functools import partial

from controlplane.protocol.spec import LinkEmulation
from workers.transport.channel import Channel
from workers.transport.errors import ConnectionClosed
from workers.transport.frames import MAX_PAYLOAD_BYTES, Buffer, Header, encode_frame_header

CHUNK_BYTES = 64 * 1024
"""Large enough for a low overhead, small enough that connections share the link fairly."""
QUEUE_S = 0.01
"""A real link sends what is queued while the process waits for a core: so much of a late wake-up is made good."""


class Lane:
    """One direction: payloads of all senders pass one after another, and frames without payload between them."""

    def __init__(self, rest: Callable[[float], object], now: Callable[[], float]) -> None:
        self._rest, self._now = rest, now
        self._lock = threading.Lock()
        self._free_at = now()
        self._late_s, self._woke_at = 0.0, now()
        """Of the last sender: by how much it woke up too late, and when."""
        self.bytes_per_second: float | None = None

    def pass_through(self, size: int) -> None:
        """Wait until ``size`` bytes have had their time, behind those that came before."""
        self._take(size, behind_others=True)

    def pass_between(self, size: int) -> None:
        """Wait for the time of ``size`` bytes alone: a link that is shared fairly does not let a reply of a few bytes
        wait for the chunks of other connections.
        """
        self._take(size, behind_others=False)

    def _take(self, size: int, *, behind_others: bool) -> None:
        with self._lock:
            if self.bytes_per_second is None:
                return
            now = self._now()
            began = now - (self._late_s if now - self._woke_at < QUEUE_S else 0.0)
            self._late_s = 0.0
            took_s = size / self.bytes_per_second
            self._free_at = max(self._free_at, began) + took_s
            due = self._free_at if behind_others else began + took_s
        if due <= now:
            return
        self._rest(due - now)
        with self._lock:
            self._woke_at = self._now()
            self._late_s = min(max(0.0, self._woke_at - due), QUEUE_S)


class EmulatedLink:
    """Both directions of one process's link. ``rest`` sleeps for the given seconds."""

    def __init__(
        self,
        emulation: LinkEmulation,
        *,
        rest: Callable[[float], object] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emulation = emulation
        self._iteration = -1
        self.inward, self.outward = Lane(rest, now), Lane(rest, now)
        self.reach(0)

    def reach(self, iteration: int) -> None:
        """The process has reached ``iteration``: set the limit that applies from there on."""
        if iteration > self._iteration:
            self._iteration = iteration
            limit = self._emulation.at(iteration)
            self.inward.bytes_per_second = self.outward.bytes_per_second = limit


class ThrottledChannel(Channel):
    """A channel through an emulated link."""

    def __init__(self, connected: socket.socket, link: EmulatedLink) -> None:
        super().__init__(connected)
        self._link = link

    def send(self, header: Header, payload: Buffer = b"") -> None:
        """As ``Channel.send``, in chunks; reports the iteration of sent frames to a worker's link."""
        self._link.reach(header.iteration)
        front, rest = encode_frame_header(header, payload), memoryview(payload)
        outward = self._link.outward
        take = outward.pass_through if len(rest) else outward.pass_between
        try:
            take(len(front) + min(len(rest), CHUNK_BYTES))
            self._socket.sendall(front)
            for at in range(0, len(rest), CHUNK_BYTES):
                chunk = rest[at : at + CHUNK_BYTES]
                if at:
                    outward.pass_through(len(chunk))
                self._socket.sendall(chunk)
        except OSError as error:
            raise ConnectionClosed(f"peer gone while sending {header.op.name}: {error}") from error

    def receive(self, *, limit: int = MAX_PAYLOAD_BYTES) -> Header:
        """As ``Channel.receive``; reports the sender's iteration to the link."""
        header = super().receive(limit=limit)
        self._link.reach(header.iteration)
        return header

    def _fill(self, view: memoryview) -> None:
        for at in range(0, len(view), CHUNK_BYTES):
            chunk = view[at : at + CHUNK_BYTES]
            super()._fill(chunk)
            self._link.inward.pass_through(len(chunk))


def through(
    emulation: LinkEmulation | None, rest: Callable[[float], object] = time.sleep
) -> Callable[[socket.socket], Channel]:
    """Creates channels that are direct, or share one emulated link."""
    return Channel if emulation is None else partial(ThrottledChannel, link=EmulatedLink(emulation, rest=rest))
