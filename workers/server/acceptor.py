"""Accepts connections and authenticates them: one thread does all handshakes and passes on authenticated peers.

An unauthenticated connection costs a descriptor and a few hundred bytes, but no thread. Their number is limited, and
each has a deadline for the whole handshake. At the limit, the oldest connection of the address with the most
connections is closed: a regular peer authenticates within a few milliseconds.
"""

import logging
import selectors
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from workers.descriptors import allow_descriptors
from workers.transport import streams
from workers.transport.encryption import PLAIN, Encryption, instances_of
from workers.transport.errors import ConnectionClosed, Interrupted
from workers.transport.handshake import ENCRYPT, HANDSHAKE_S, Answer, Greeting, KeyOf, Peer

log = logging.getLogger(__name__)

MAX_PENDING = 256
"""Limit of unauthenticated connections."""
SHARE_OF_DESCRIPTORS = 4
"""They may use at most 1 / n of the process's descriptors."""
AT_ONCE = 16
"""Number of connections accepted before pending handshakes are read again."""
PAUSE_S = 0.02
"""Pause after connections were evicted or could not be accepted, so that a flood does not take the CPU.

It limits a flood to 800 connections per second: each has a third of a second for its handshake.
"""
CLOSE_S = 5.0
LOG_EVERY_S = 10.0
"""Shortest interval between two log lines about ended connections."""

Admit = Callable[[socket.socket, Peer], None]


@dataclass(slots=True, eq=False)
class Pending:
    """A connection that is not authenticated yet."""

    connected: socket.socket
    address: str
    greeting: Greeting
    until: float
    """Deadline of its handshake."""
    encrypting: ssl.SSLSocket | None = None
    """Until TLS is established."""


class Acceptor:
    """Listens on a free port of ``host`` from creation until ``close``; ``admit`` receives each connection with its
    peer.

    Args:
        host: the address to listen on.
        key_of: returns the key that a peer shares with this server.
        admit: called on the acceptor's thread, with a blocking socket that it then owns.
        encryption: how connections are encrypted, if they are.
        max_pending: limit of unauthenticated connections; by default ``MAX_PENDING``, or fewer if descriptors are few.
    """

    def __init__(
        self, host: str, key_of: KeyOf, admit: Admit, *, encryption: Encryption = PLAIN, max_pending: int | None = None
    ) -> None:
        self._key_of, self._admit, self._encryption = key_of, admit, encryption
        self._max_pending = max_pending or min(MAX_PENDING, max(1, allow_descriptors() // SHARE_OF_DESCRIPTORS))
        self._pending: dict[Pending, None] = {}
        self._closed = threading.Event()
        self._rejected, self._last, self._logged_at = 0, "", -LOG_EVERY_S
        self._listening = streams.Listening(host)
        self.port: int = self._listening.port
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="acceptor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting, and close pending connections."""
        self._closed.set()
        self._listening.shut()
        self._thread.join(CLOSE_S)
        self._listening.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            ready = self._selector.select(self._select_timeout_s())
            for key, _ in ready:
                if key.data is not None:
                    self._read_handshake(key.data)
            self._end_overdue()
            if any(key.data is None for key, _ in ready) and not self._accept():
                self._closed.wait(PAUSE_S)
            self._log_rejected()
        for pending in list(self._pending):
            self._end(pending)
        self._selector.close()

    def _accept(self) -> bool:
        """Accept some connections; False if the limit was reached."""
        is_below_limit = True
        for _ in range(AT_ONCE):
            try:
                connected, address = self._listening.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if not self._closed.is_set():
                    self._evict_one(f"no connection can be accepted: {error}")
                return False
            self._register(connected, address)
            if len(self._pending) > self._max_pending:
                self._evict_one(f"more than {self._max_pending} were not authenticated")
                is_below_limit = False
        return is_below_limit

    def _register(self, connected: socket.socket, address: str) -> None:
        pending = Pending(connected, address, Greeting(self._key_of), time.monotonic() + HANDSHAKE_S)
        connected.setblocking(False)
        self._pending[pending] = None
        self._selector.register(connected, selectors.EVENT_READ, pending)
        if not self._encryption.encrypts:
            self._send(pending, pending.greeting.opening)
        elif self._send(pending, ENCRYPT):
            self._begin_encryption(pending)

    def _begin_encryption(self, pending: Pending) -> None:
        """Start TLS: the same descriptor in another object, so the selector is updated."""
        self._selector.unregister(pending.connected)
        try:
            pending.connected = pending.encrypting = self._encryption.accept(pending.connected)
        except OSError as error:  # it has ended already
            del self._pending[pending]
            pending.connected.close()
            self._note(f"{pending.address}: {error}")
        else:
            self._selector.register(pending.connected, selectors.EVENT_READ, pending)

    def _is_encrypted(self, pending: Pending) -> bool:
        """Whether TLS is established if it is required; then the handshake continues within it."""
        if pending.encrypting is None:
            return True
        try:
            pending.encrypting.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (OSError, ValueError) as error:
            self._end(pending, f"TLS was not agreed on: {error}")
            return False
        pending.greeting.certified = instances_of(pending.encrypting)
        pending.encrypting = None
        return self._send(pending, pending.greeting.opening)

    def _read_handshake(self, pending: Pending) -> None:
        if pending not in self._pending or not self._is_encrypted(pending):
            return
        try:
            answer = None
            while answer is None:  # data that TLS has already decrypted does not wake the selector
                answer = pending.greeting.take(_read(pending))
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except (OSError, Interrupted) as error:
            self._end(pending, str(error))
            return
        if self._send(pending, answer.frame):
            self._conclude(pending, answer)

    def _conclude(self, pending: Pending, answer: Answer) -> None:
        if answer.peer is None:
            self._end(pending, answer.refused)
            return
        self._leave(pending)
        try:
            pending.connected.setblocking(True)
            self._admit(pending.connected, answer.peer)
        except Exception as error:  # any error: the acceptor keeps serving other connections
            pending.connected.close()
            log.error("%s %d cannot be served: %s", answer.peer.role, answer.peer.rank, error)

    def _send(self, pending: Pending, frame: bytes) -> bool:
        """Return whether the frame was sent: a few bytes always fit, unless the peer is gone."""
        try:
            if pending.connected.send(frame) == len(frame):
                return True
            reason = "its receive buffer is full"
        except OSError as error:
            reason = str(error)
        self._end(pending, reason)
        return False

    def _end_overdue(self) -> None:
        """Oldest first, which is the order of their deadlines."""
        now = time.monotonic()
        for pending in list(self._pending):
            if pending.until > now:
                break
            self._end(pending, f"not authenticated within {HANDSHAKE_S:g} s")

    def _evict_one(self, reason: str) -> None:
        """Close the oldest connection of the address that has the most."""
        if not self._pending:
            self._note(reason)
            return
        counts = Counter(pending.address for pending in self._pending)
        self._end(max(self._pending, key=lambda pending: counts[pending.address]), reason)

    def _end(self, pending: Pending, reason: str = "") -> None:
        self._leave(pending)
        pending.connected.close()
        if reason:
            self._note(f"{pending.address}: {reason}")

    def _leave(self, pending: Pending) -> None:
        del self._pending[pending]
        self._selector.unregister(pending.connected)

    def _note(self, reason: str) -> None:
        self._rejected, self._last = self._rejected + 1, reason

    def _log_rejected(self) -> None:
        now = time.monotonic()
        if self._rejected and now - self._logged_at >= LOG_EVERY_S:
            log.warning("%d connections ended before they were authenticated; the last: %s", self._rejected, self._last)
            self._rejected, self._logged_at = 0, now

    def _select_timeout_s(self) -> float | None:
        """Seconds until the first deadline or log line; the oldest connection has the first deadline."""
        now = time.monotonic()
        due = [pending.until for pending in list(self._pending)[:1]]
        if self._rejected:
            due.append(self._logged_at + LOG_EVERY_S)
        return max(0.0, min(due) - now) if due else None


def _read(pending: Pending) -> bytes:
    """Read only the handshake: later bytes belong to the session.

    Raises:
        ConnectionClosed: if the peer ended it.
    """
    data = pending.connected.recv(pending.greeting.due)
    if not data:
        raise ConnectionClosed("the peer closed it during the handshake")
    return data
