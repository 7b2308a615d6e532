"""The agent's side of the relay: collects frames of its processes and sends them in batches, and distributes received
ones.

Runs on a separate thread with its own event loop. A process whose frames cannot be forwarded is notified immediately
and connects directly: the relay only saves connections.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.codec import BadFrame
from controlplane.protocol.relay import MAX_CHANNELS, MAX_REPLY_BYTES, TAKES_BEATS, Outgoing, to_relay
from workers.backoff import Backoff
from workers.control.connection import PING_S, PING_TIMEOUT_S
from workers.relay.framing import BEAT, FRAME, OPEN, REPORTS_BEATS, TO_AGENT, BadFraming, Frames, packed, packed_close

FLUSH_S: Final = 0.002
"""A frame waits for others for at most this long, and only while more arrive."""

HOLD_S: Final = 0.5
"""How long a process waits for the relay to connect before it connects directly."""

ALIVE_S: Final = 1.0
"""How often it is reported which processes are alive."""

RETURN_S: Final = 1.0
"""The longest delay between two attempts after a lost connection, so that waiting processes find it connected."""

REFUSED_S: Final = 30.0
"""The delay after the control plane has rejected the relay."""

BATCH_BYTES: Final = 256 * 1024
"""Batches above this size are sent; one more frame fits into the control plane's limit."""

MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""Bytes queued for the control plane; above this, processes are not read."""

MOST_UNREAD_BYTES: Final = 1024 * 1024
"""Bytes that a process has not read; above this it is disconnected at the next frame."""

MOST_PATH_BYTES: Final = 100
"""The kernel's limit for the path of a socket is 107 characters."""

TRY_AGAIN, OVERSIZED = 1013, 4413

OUTAGES: Final = {429, 502, 503, 504}
"""HTTP statuses of temporary failures."""

log = structlog.get_logger("relay")


class Relay:
    """The relay of one agent. ``path``: its socket, once it was started."""

    def __init__(self, plane: ControlPlane, headers: Mapping[str, str], folder: Path) -> None:
        self._plane, self._headers = plane, dict(headers)
        self.path = socket_path(folder)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._exchange = Exchange()

    def start(self) -> None:
        """Listen, then connect; returns once it listens."""
        self._thread.start()
        self._listens.wait()

    def close(self, *, wait_s: float = 2.0) -> None:
        """Disconnect and remove the socket; remaining processes connect directly."""
        if self._loop is not None and self._serving is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._serving.cancel)
        if self._thread.is_alive():
            self._thread.join(wait_s)
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def prove_with(self, headers: Mapping[str, str]) -> None:
        """Use these headers at the next handshake."""
        self._headers = dict(headers)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the relay failed: processes connect by themselves")
        finally:
            self._listens.set()

    async def _serve(self) -> None:
        """Run until ``close``."""
        self._loop, self._serving = asyncio.get_running_loop(), asyncio.current_task()
        folder = self.path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        self.path.unlink(missing_ok=True)
        server = await self._loop.create_unix_server(lambda: Local(self._exchange), self.path, backlog=1024)
        self._listens.set()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await self._stay_connected()
        finally:
            server.close()
            await self._exchange.close()

    async def _stay_connected(self) -> None:
        backoff = Backoff(first_s=0.05, most_s=RETURN_S)
        while True:
            why: Exception | None = None
            try:
                async with self._connect() as socket:
                    backoff.reset()
                    await self._exchange.converse(socket)
            except (OSError, TimeoutError, WebSocketException) as error:
                why = error
            finally:
                self._exchange.lose()
            self._exchange.is_refused = _is_refusal(why)
            delay_s = REFUSED_S if self._exchange.is_refused else backoff.next_s()
            log.info(f"the relay is not connected ({why}): processes connect by themselves; again in {delay_s:.1f} s")
            await asyncio.sleep(delay_s)

    def _connect(self) -> connect:
        return connect(
            self._plane.socket("/ws/relay"),
            additional_headers=self._headers,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=2 * MAX_REPLY_BYTES,
            ping_interval=PING_S,
            ping_timeout=PING_TIMEOUT_S,
            close_timeout=1.0,
            proxy=None if self._plane.loopback else True,
        )


class Exchange:
    """The channels of one connection at a time, and their local sockets."""

    def __init__(self) -> None:
        self._outgoing = Outgoing(BATCH_BYTES)
        self._locals: dict[int, Local] = {}
        """By channel number."""
        self.there: set[Local] = set()
        """All connected processes."""
        self._held: dict[Local, asyncio.TimerHandle] = {}
        """Processes that wait for the relay to connect."""
        self._takes_beats = False
        """Whether the control plane takes reports of which processes are alive."""
        self._alive: set[int] = set()
        """Channels whose processes have sent a beat since the last report."""
        self._reported: set[int] = set()
        """Channels that were in the last report, or have been reported since."""
        self._connected = self._is_full = False
        self.is_refused = False
        """Whether no connection is expected for a while."""
        self._newest = 0
        """The number of the newest channel. Numbers are never reused, so that a late close of an earlier connection
        closes no other channel.
        """
        self._wake: asyncio.Event = asyncio.Event()

    def enter(self, local: "Local") -> None:
        """A process connected: give it a channel, now or once there is a connection."""
        if len(self._locals) >= MAX_CHANNELS:
            local.end(TRY_AGAIN)
        elif self._connected:
            self._open(local)
        elif self.is_refused:
            local.end(TRY_AGAIN)
        else:
            self._held[local] = asyncio.get_running_loop().call_later(HOLD_S, local.end, TRY_AGAIN)

    def send(self, local: "Local", frame: bytes) -> None:
        """Forward a message of a process."""
        self._outgoing.add(local.channel, frame)
        self._wake.set()
        if self._outgoing.waiting_bytes > MOST_WAITING_BYTES and not self._is_full:
            self._is_full = True
            for each in self._locals.values():
                each.pause()

    def beat(self, local: "Local") -> None:
        """A process is alive: that is in the next report. One that was missing in the last is reported at once: it may
        have been silent for almost as long as the control plane permits.
        """
        channel = local.channel
        if channel in self._reported:
            self._alive.add(channel)
        elif channel in self._locals:
            self._reported.add(channel)
            self._report([channel])

    def leave(self, local: "Local") -> None:
        """A process disconnected."""
        if (held := self._held.pop(local, None)) is not None:
            held.cancel()
        if self._locals.pop(local.channel, None) is not None:
            self._outgoing.close(local.channel)
            self._wake.set()

    def lose(self) -> None:
        """The connection was lost: nothing can be forwarded."""
        self._connected = self._is_full = False
        self._outgoing.clear()
        self._alive.clear()
        self._reported.clear()
        gone, self._locals = self._locals, {}
        for local in gone.values():
            local.end(TRY_AGAIN)

    async def close(self) -> None:
        """Close every connection."""
        self.lose()
        for local in list(self.there):
            local.end(TRY_AGAIN)
        while self.there:
            for local in list(self.there):
                local.drop()
            await asyncio.sleep(0)

    async def converse(self, socket: ClientConnection) -> None:
        """Forward batches both ways. Raises ``ConnectionClosed`` at the end of the connection."""
        self._connected = True
        response = socket.response
        self._takes_beats = response is not None and TAKES_BEATS in response.headers
        self._wake = asyncio.Event()
        held, self._held = self._held, {}
        for local, timer in held.items():
            timer.cancel()
            self._open(local)
        steps = (self._send_batches(socket), self._receive_batches(socket), self._report_beats())
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _open(self, local: "Local") -> None:
        self._newest += 1
        self._locals[self._newest] = local
        self._outgoing.open(self._newest, local.opening)
        self._wake.set()
        local.opened(self._newest, reports_beats=self._takes_beats)

    async def _send_batches(self, socket: ClientConnection) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._until_idle()
            while self._outgoing:
                await socket.send(self._outgoing.take())
            if self._is_full:
                self._is_full = False
                for local in self._locals.values():
                    local.resume()

    async def _receive_batches(self, socket: ClientConnection) -> None:
        while True:
            self._deliver(await socket.recv(decode=False))

    async def _report_beats(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            self._reported, self._alive = self._alive & self._locals.keys(), set()
            self._report(self._reported)

    def _report(self, alive: Collection[int]) -> None:
        if alive and self._takes_beats:
            self._outgoing.alive(alive)
            self._wake.set()

    async def _until_idle(self) -> None:
        """Wait while processes send: each iteration of the event loop reads once from every socket with data."""
        deadline_s, seen = time.monotonic() + FLUSH_S, -1
        while seen != self._outgoing.added and self._outgoing.waiting_bytes < BATCH_BYTES:
            if time.monotonic() >= deadline_s:
                break
            seen = self._outgoing.added
            await asyncio.sleep(0)

    def _deliver(self, frame: bytes) -> None:
        try:
            batch = to_relay.decode(frame)
        except BadFrame as error:
            log.warning(f"the control plane sent a batch that was ignored: {error}")
            return
        for channel, data in batch.frames:
            if (local := self._locals.get(channel)) is not None:
                local.send(data)
        for channel, code in batch.closed:
            if (local := self._locals.pop(channel, None)) is not None:
                local.end(code)


class Local(asyncio.Protocol):
    """The local socket of one process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._frames = Frames(TO_AGENT)
        self._socket: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        """The transport, until its end was sent."""
        self.opening = b""
        self.channel = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._socket = transport
        self._exchange.there.add(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            for kind, payload in self._frames.feed(data):
                self._take(kind, payload)
        except BadFraming as error:
            log.warning(f"a process was disconnected: {error}")
            self.end(OVERSIZED)

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._exchange.there.discard(self)
        self._exchange.leave(self)

    def opened(self, channel: int, *, reports_beats: bool) -> None:
        """Its frames are forwarded from now on."""
        self.channel = channel
        self._write(packed(OPEN, REPORTS_BEATS if reports_beats else b""))

    def send(self, frame: bytes) -> None:
        """Send a message to the process; if it does not read, it is disconnected."""
        if self._transport is not None and self._transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            log.warning(f"a process was disconnected: it has not read {MOST_UNREAD_BYTES} bytes")
            self.drop()
        self._write(packed(FRAME, frame))

    def end(self, code: int) -> None:
        """Close the socket, after what was sent on it."""
        self._write(packed_close(code))
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def drop(self) -> None:
        """Close the socket without waiting until the process has read everything."""
        self._transport = None
        if self._socket is not None and not self._socket.get_write_buffer_size():
            self._socket.close()
        elif self._socket is not None:
            self._socket.abort()

    def pause(self) -> None:
        """Pause reading."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None:
            self._transport.resume_reading()

    def _take(self, kind: int, payload: bytes) -> None:
        if self._transport is None:
            return
        if kind == FRAME and self.channel:
            self._exchange.send(self, payload)
        elif kind == BEAT:
            self._write(packed(BEAT))
            self._exchange.beat(self)
        elif kind == OPEN and not self.opening and payload:
            self.opening = payload
            self._exchange.enter(self)
        else:
            raise BadFraming(f"a frame of kind {kind} is not expected {'now' if self.opening else 'first'}")

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _is_refusal(error: Exception | None) -> bool:
    """Whether the control plane rejects this relay, temporarily or permanently; outages, including a proxy's, do not
    count.
    """
    if isinstance(error, ConnectionClosed):
        return error.rcvd is not None and error.rcvd.code >= 4000
    return isinstance(error, InvalidStatus) and error.response.status_code not in OUTAGES


def socket_path(folder: Path) -> Path:
    """The socket's path: in a folder that only its owner can access; in the temporary folder
    if the path were too long.
    """
    place = folder / "relay"
    if len(os.fsencode(place / "socket")) > MOST_PATH_BYTES:
        return Path(tempfile.mkdtemp(prefix="paceline-relay-"), "socket")
    return place / "socket"
