"""The control socket of a process: one connection to the control plane, reopened after every loss until it is closed or
rejected.

A process tries its agent's relay before a websocket. One thread connects and reads. For each connection another thread
writes: messages in the order of their numbers, heartbeats, and each second unnumbered messages if nothing else is
pending. So senders never wait for the network.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import msgspec
import structlog
from websockets.exceptions import InvalidStatus, WebSocketException

from controlplane.protocol.addresses import ControlPlane
from controlplane.protocol.cleaning import cleaned
from controlplane.protocol.codec import BadFrame, Codec, encode
from workers.backoff import Backoff
from workers.control.connection import BEAT_S, Connection, ConnectionEnded, websocket
from workers.control.outbox import Outbox
from workers.relay.process import LocalConnection, LocalRoute, NoRelay

HEARTBEAT_S = 1.0
RETURN_S = 2.0
"""The longest delay between two attempts: after its own outage the control plane declares no process lost for 5 s."""

EXTRAS_S = 1.0
"""How often unnumbered messages are sent."""

RESEND_S = 1.0
"""Minimum time between two resends that the other side requested."""

TRY_AGAIN = 1013
FAILED, MALFORMED, UNAUTHORISED, REPLACED, JOB_OVER = 1011, 4400, 4401, 4409, 4410
FINAL_CODES = {
    UNAUTHORISED: "the control plane refuses this credential",
    REPLACED: "another process has taken this one's place",
    JOB_OVER: "the job is over",
}
"""Close codes after which reconnecting is useless."""
NOT_WANTED = {REPLACED, JOB_OVER}
"""Close codes that are not errors."""

NEVER_ACCEPTED = ("malformed", "oversized")
"""Rejections that every retry would get again: a fault of this client, which would otherwise go unnoticed."""

Sent = TypeVar("Sent", bound=msgspec.Struct)
Received = TypeVar("Received")
log = structlog.get_logger("control")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the control plane rejects this process for good."""

    code: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Address and identity of one process's connection. The headers contain its credential: never print them."""

    plane: ControlPlane
    path: str
    headers: Mapping[str, str] = field(repr=False)
    local: LocalRoute | None = None
    """The route through the agent's relay, if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers(Generic[Received]):
    """Callbacks, called on the socket's thread one after the other."""

    receive: Callable[[Received], None]
    opened: Callable[[], None]
    ended: Callable[[Ending], None]


class ControlSocket(Generic[Sent, Received]):
    """Sends the messages of an outbox and delivers received ones, across reconnects."""

    def __init__(
        self,
        route: Route,
        outbox: Outbox[Sent],
        codec: Codec[Received],
        handlers: Handlers[Received],
        *,
        heartbeat: Callable[[], msgspec.Struct],
        extras: Callable[[], Iterable[msgspec.Struct]] = tuple,
        backoff: Backoff | None = None,
        after_message_s: float | None = None,
    ) -> None:
        """``after_message_s``: how long after a message a heartbeat is due, if the other side counts messages as
        heartbeats.
        """
        self._route, self._outbox, self._codec, self._handlers = route, outbox, codec, handlers
        self._heartbeat, self._extras, self._after_message_s = heartbeat, extras, after_message_s
        self._backoff = backoff or Backoff(most_s=RETURN_S)
        self._closing = threading.Event()
        self._connection: Connection | None = None
        self._avoids_relay = False
        """Whether the next connection is a websocket: the last one, through the relay, did not end by an outage."""
        self._resent_s = 0.0
        self._refused: int | None = None
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start connecting."""
        self._thread.start()

    def close(self, *, wait_s: float = 2.0) -> None:
        """Close the connection after the message that is being sent, and stop reconnecting."""
        self._closing.set()
        self._outbox.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(wait_s)

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    def prove_with(self, headers: Mapping[str, str]) -> None:
        """Use these headers at the next handshake."""
        self._route = replace(self._route, headers=headers)

    def resend(self) -> None:
        """Resend all messages that are not durable, at most once per ``RESEND_S``."""
        if self._may_resend():
            self._outbox.resend()

    def resend_from(self, number: int, incarnation: int) -> None:
        """Resend from the message that the other side waits for, at most once per ``RESEND_S``."""
        if self._may_resend() and (lost := self._outbox.resend_from(number, incarnation)):
            log.warning(
                f"the control plane lost {lost} messages that it had kept, from {number} on: its database is older than"
                " they are; continuing with what it has"
            )

    def _may_resend(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._resent_s < RESEND_S:
            return False
        self._resent_s = now_s
        return True

    def slow_down(self, number: int) -> None:
        """The other side rejected messages from that number on: send it again within a second (``EXTRAS_S``)."""
        if self._refused is None:
            log.warning(f"the control plane cannot keep up: message {number} and those behind it are kept for now")
        self._refused = number

    def _run(self) -> None:
        """A process without its control socket would wait forever, so any error here ends it."""
        try:
            self._stay_connected()
        except Exception as error:
            log.exception("the control socket failed")
            self._handlers.ended(Ending(code=FAILED, reason=f"the control socket failed: {error!r}"))

    def _stay_connected(self) -> None:
        while not self._closing.is_set():
            try:
                ending = self._live()
            except (OSError, WebSocketException, ConnectionEnded) as error:
                ending = _refusal(error)
                if ending is None and not self._avoids_relay:
                    self._pause(_sentence(error))
            if ending is not None:
                self._handlers.ended(ending)
                return

    def _pause(self, why: str) -> None:
        delay_s = self._backoff.next_s()
        if not self._closing.is_set():
            url = self._route.plane.url
            log.warning(f"no connection to {url} ({why}); attempt {self._backoff.attempts + 1} in {delay_s:.1f} s")
            self._closing.wait(delay_s)

    def _live(self) -> Ending | None:
        """Run one connection. Raises the error that prevented or ended it, unless it was closed here."""
        with self._open() as connection:
            try:
                self._converse(connection)
            except ConnectionEnded as ended:
                if ended.code in FINAL_CODES:
                    return Ending(code=ended.code, reason=ended.reason or FINAL_CODES[ended.code])
                if not self._closing.is_set():
                    self._avoids_relay = isinstance(connection, LocalConnection) and ended.code != TRY_AGAIN
                    raise
        return None

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        """Connect through the relay, or else with a websocket."""
        route = self._route
        avoids_relay, self._avoids_relay = self._avoids_relay, False
        if route.local is not None and not avoids_relay:
            try:
                local = LocalConnection.open(route.local)
            except NoRelay as error:
                log.info(f"connecting without the agent: {error}")
            else:
                try:
                    yield local
                finally:
                    local.release()
                return
        with websocket(route.plane, route.path, route.headers) as connection:
            yield connection

    def _converse(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox.reopen()
        self._handlers.opened()
        over = threading.Event()
        writer = threading.Thread(target=self._write, args=(connection, over), name="control-writer", daemon=True)
        writer.start()
        try:
            while not self._closing.is_set():
                self._read(connection.recv())
        finally:
            self._connection = None
            over.set()
            self._outbox.wake()
            writer.join()

    def _read(self, frame: bytes) -> None:
        self._backoff.reset()
        try:
            message = self._codec.decode(frame)
        except BadFrame as error:
            log.warning(f"the control plane sent a message that was ignored: {error}")
        else:
            self._handlers.receive(message)

    def _write(self, connection: Connection, over: threading.Event) -> None:
        def wanted() -> bool:
            return not (over.is_set() or self._closing.is_set())

        heartbeat_s = extras_s = beat_s = time.monotonic()
        try:
            while wanted():
                message = self._outbox.take(min(heartbeat_s, extras_s, beat_s) - time.monotonic(), wanted=wanted)
                now_s = time.monotonic()
                if message is not None:
                    connection.send(encode(cleaned(message)))
                    if self._after_message_s is not None:
                        heartbeat_s = now_s + self._after_message_s
                if now_s >= beat_s:
                    beat_s = now_s + BEAT_S
                    connection.beat()
                if now_s >= heartbeat_s:
                    heartbeat_s = now_s + HEARTBEAT_S
                    if self._outbox.opened and not connection.reports_beats:
                        connection.send(encode(self._heartbeat()))
                if now_s >= extras_s:
                    extras_s = now_s + EXTRAS_S
                    if self._outbox.opened and self._outbox.all_sent:
                        for extra in self._extras():
                            connection.send(encode(cleaned(extra)))
                    self._say_again()
        except ConnectionEnded:
            pass  # the reader receives the same end, and its reason
        finally:
            if not over.is_set():
                connection.close()

    def _say_again(self) -> None:
        if self._refused is not None:
            self._outbox.resend(self._refused)
            self._refused = None


def _refusal(error: Exception) -> Ending | None:
    """Whether the server rejected the handshake because of this client, not because of a temporary failure."""
    if isinstance(error, InvalidStatus) and error.response.status_code in {401, 403}:
        reason = f"{FINAL_CODES[UNAUTHORISED]} (HTTP {error.response.status_code})"
        return Ending(code=UNAUTHORISED, reason=reason)
    return None


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
