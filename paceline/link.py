"""A rank's websocket to the control plane: one thread with an event loop, which reconnects after each loss.

A message stays in an outbox until it is durable. During an outage at most ``MOST_KEPT`` messages are kept; later ones
get no number and are counted. At the end of the script ``close`` continues to reconnect until all are durable or its
time is over. Errors in this module are logged, and training continues.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from controlplane.protocol import SUBPROTOCOL
from controlplane.protocol.cleaning import cleaned
from controlplane.protocol.codec import MAX_FRAME_BYTES, BadFrame, encode, to_rank
from controlplane.protocol.messages import Heartbeat
from controlplane.protocol.orders import Durable, Orders, Rejection
from controlplane.protocol.outbox import Outbox
from paceline.address import Address

MOST_KEPT: Final = 20_000
"""Nearly three hours of messages without a control plane, at two iterations per second."""

HEARTBEAT_S: Final = 1.0
"""A heartbeat is sent after this long without a message."""

GATHER_S: Final = 0.1
"""Messages that follow one another this closely are sent together: in fast loops this thread wakes up ten times a
second.
"""

BITE, BITE_S = 16, 0.01
"""A backlog is sent in small parts, so that the script's thread never waits long for the GIL."""

PING_S, PING_TIMEOUT_S = 10.0, 15.0
FIRST_DELAY_S, MOST_DELAY_S = 0.25, 5.0
LAST_DELAY_S: Final = 1.0
"""The longest delay before a reconnection while the end of the script waits for it."""

CLOSE_S: Final = 1.0
FINAL: Final = {
    4401: "its token is invalid or has expired",
    4409: "another process has replaced this rank",
    4410: "the job is over",
}
"""Close codes after which reconnecting is pointless."""

ENDING: Final = {"stale": 4409, "unauthorised": 4401}
"""Rejections that concern the whole connection, not one message."""

Build = Callable[[int], Any]
log = logging.getLogger("paceline")


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that resolves addresses itself: the standard one starts a second thread for that."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Resolve the address synchronously; this loop has no other work before that."""
        return socket.getaddrinfo(host, port, **options)


class SocketLink:
    """Keeps sending and receiving until it is closed or rejected. Thread-safe.

    Args:
        name: the rank's name, for the log.
    """

    def __init__(self, address: Address, token: str, name: str, *, most_kept: int = MOST_KEPT) -> None:
        self._address, self._name, self._most_kept = address, name, most_kept
        self._headers = {"Authorization": f"Bearer {token}", "X-Paceline-Instance": secrets.token_hex(16)}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._outbox: Outbox[Any] = Outbox()
        self._dropped = 0
        self._orders: Orders | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_waking = True
        """Whether the thread checks for messages without being woken up."""
        self._leaving = False
        """Whether the script waits for the remaining messages."""
        self._closing = False
        self._gone = ""
        """Why it will not reconnect."""
        self._beat: Callable[[], None] | None = None
        self._failures = 0
        self._refused_at: int | None = None
        self._logged: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="paceline", daemon=True)

    # -- for the script's thread

    def say(self, build: Build) -> None:
        """Send ``build(number)`` as soon as possible; the first call opens the connection."""
        with self._lock:
            if self._gone:
                return
            if self._outbox.unacknowledged >= self._most_kept:
                self._dropped += 1
                return
            is_first = not self._outbox.last
            self._outbox.say(build)
        if is_first:
            self._thread.start()
        self._rouse()

    def newest(self) -> Orders | None:
        """The newest orders, if any have arrived."""
        return self._orders

    def await_orders(self, wait_s: float) -> Orders | None:
        """The first orders; None if none arrive in time, or no connection could be made."""
        with self._changed:
            self._changed.wait_for(lambda: self._orders is not None or bool(self._gone) or self._failures > 0, wait_s)
            return self._orders

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, on the connection's thread, in each second without another message."""
        self._beat = callback

    def close(self, wait_s: float) -> None:
        """Send the remaining messages, reconnecting if necessary, for at most so many seconds, and disconnect."""
        if not self._thread.is_alive():
            return
        deadline_s = time.monotonic() + wait_s
        self._leaving, self._is_waking = True, False
        self._rouse()  # out of its delay after a failure
        with self._changed:
            self._changed.wait_for(lambda: not self._outbox.unacknowledged or bool(self._gone), wait_s)
            left = self._outbox.unacknowledged + self._dropped
        if left and not self._gone:
            log.warning("paceline: %s: the control plane has not confirmed %d messages at the end", self._name, left)
        self._closing, self._is_waking = True, False
        self._rouse()
        self._thread.join(max(CLOSE_S, deadline_s - time.monotonic()))

    @property
    def unacknowledged(self) -> int:
        """Number of kept messages."""
        return self._outbox.unacknowledged

    def _rouse(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is None or wake is None or self._is_waking:
            return
        self._is_waking = True
        with contextlib.suppress(RuntimeError):  # the loop has just ended
            loop.call_soon_threadsafe(wake.set)

    # -- on the connection's thread

    def _run(self) -> None:
        loop = _Loop()
        try:
            loop.run_until_complete(self._live())
        except Exception as error:
            log.warning(
                "paceline: %s continues without the control plane: the connection failed: %r", self._name, error
            )
            self._end(f"{error!r}")
        finally:
            self._loop = None
            loop.close()

    async def _live(self) -> None:
        from websockets.exceptions import WebSocketException

        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        while not (self._closing or self._gone):
            try:
                await self._connect()
            except (OSError, WebSocketException, TimeoutError) as error:
                if not self._is_final(error):
                    await self._pause(error)

    async def _connect(self) -> None:
        """Run one connection, from opening to closing."""
        from websockets.asyncio.client import connect
        from websockets.typing import Subprotocol

        connecting = connect(
            self._address.url,
            additional_headers=self._headers,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=64 * MAX_FRAME_BYTES,
            ping_interval=PING_S,
            ping_timeout=PING_TIMEOUT_S,
            open_timeout=10.0,
            close_timeout=CLOSE_S,
            proxy=None if self._address.is_loopback else True,
        )
        connection = await connecting
        try:
            with self._lock:
                self._outbox.reopen()
            writing = asyncio.ensure_future(self._write(connection))
            try:
                async for frame in connection:
                    self._read(frame if isinstance(frame, bytes) else frame.encode())
                    if self._gone:
                        return
            finally:
                writing.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await writing
            if not self._closing:
                raise OSError(f"it was closed ({connection.close_code} {connection.close_reason or ''})")
        finally:
            await connection.close()

    async def _write(self, connection: Any) -> None:
        """Send messages in the order of their numbers, and a heartbeat in each second without a message."""
        again_s = time.monotonic() + HEARTBEAT_S
        while True:
            sent = 0
            while (self._leaving or sent < BITE) and (message := self._take()) is not None:
                await connection.send(encode(cleaned(message)))
                sent += 1
            if self._closing:
                await connection.close()
                return
            if time.monotonic() >= again_s:
                again_s = time.monotonic() + HEARTBEAT_S
                self._resend()
            if sent == BITE:
                await asyncio.sleep(BITE_S)
                continue
            sent_s = time.monotonic()
            if await self._woken(HEARTBEAT_S):
                await asyncio.sleep(max(0.0, sent_s + GATHER_S - time.monotonic()))
            else:
                await connection.send(encode(Heartbeat()))
                if self._beat is not None:
                    self._beat()

    async def _woken(self, seconds: float) -> bool:
        """Wait until there may be something to send, or for this long; return whether there may be."""
        assert self._wake is not None
        self._wake.clear()
        self._is_waking = False
        with self._lock:
            if self._closing or not self._outbox.all_sent:
                return True
        await self._rest(seconds)
        found, self._is_waking = self._is_waking, True
        return found

    def _take(self) -> Any:
        with self._lock:
            return self._outbox.take()

    def _resend(self) -> None:
        """Send again: messages that the server rejected a second ago because its buffer was full, and messages not sent
        because ours was.
        """
        with self._lock:
            if self._refused_at is not None:
                self._outbox.resend(self._refused_at)
                self._refused_at = None
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log.warning("paceline: %s: %d reports were dropped in a long outage", self._name, dropped)

    def _read(self, frame: bytes) -> None:
        try:
            reply = to_rank.decode(frame)
        except BadFrame as error:
            self._log_once(f"the control plane sent a message that this release does not understand: {error}")
            return
        with self._changed:
            self._failures = 0
            match reply:
                case Durable():
                    self._outbox.acknowledge(reply.number)
                case Orders() if self._orders is None or reply.rank_in_time > self._orders.rank_in_time:
                    self._orders = reply
                    self._outbox.observe_incarnation(reply.incarnation)
            self._changed.notify_all()
        if isinstance(reply, Rejection):
            self._rejected(reply)

    def _rejected(self, rejection: Rejection) -> None:
        if rejection.code == "slow-down":
            self._refused_at = rejection.number or 0
        elif rejection.code == "out-of-order":
            with self._lock:
                lost = self._outbox.resend_from(rejection.number or 0, rejection.incarnation)
            if lost:
                self._log_once(f"the control plane lost {lost} reports: its database is older than they are")
        elif rejection.code in ENDING:
            self._end(rejection.detail or FINAL[ENDING[rejection.code]])
        elif rejection.code in ("malformed", "oversized"):
            self._end(f"the control plane does not support this release's protocol: {rejection.detail}")
        else:
            self._log_once(rejection.detail)

    def _log_once(self, sentence: str) -> None:
        if sentence and sentence not in self._logged:
            self._logged.add(sentence)
            log.warning("paceline: %s: %s", self._name, sentence)

    def _is_final(self, error: Exception) -> bool:
        """Whether the connection was rejected or closed because of the rank's identity."""
        from websockets.exceptions import ConnectionClosed, InvalidStatus

        if isinstance(error, ConnectionClosed) and error.rcvd is not None and error.rcvd.code in FINAL:
            self._end(error.rcvd.reason or FINAL[error.rcvd.code])
            return True
        if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403, 404):
            self._end(f"{FINAL[4401]} (HTTP {error.response.status_code})")
            return True
        return False

    def _end(self, reason: str) -> None:
        with self._changed:
            if not self._gone and not self._closing:
                log.warning("paceline: %s continues without the control plane: %s", self._name, reason)
            self._gone = reason or "gone"
            self._changed.notify_all()

    async def _pause(self, error: Exception) -> None:
        assert self._wake is not None
        with self._changed:
            self._failures += 1
            attempts = self._failures
            self._changed.notify_all()
        if attempts == 1 and not self._closing:
            log.warning(
                "paceline: %s has no connection to %s (%s): training continues with its shares, reports are buffered",
                self._name,
                self._address.url,
                error or type(error).__name__,
            )
        self._is_waking = True  # messages are kept in the meantime, without waking a thread
        self._wake.clear()
        most_s = LAST_DELAY_S if self._leaving else MOST_DELAY_S
        delay_s = random.uniform(FIRST_DELAY_S, min(most_s, FIRST_DELAY_S * 2.0 ** min(attempts, 20)))
        if not self._closing:
            await self._rest(delay_s)

    async def _rest(self, seconds: float) -> None:
        """Wait until this thread is woken, at most this long."""
        assert self._loop is not None
        assert self._wake is not None
        timer = self._loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
