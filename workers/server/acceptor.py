"""Accepts connections and authenticates them: one thread does all handshakes and passes on authenticated peers.

An unauthenticated connection costs a descriptor and a few hundred bytes, no thread. Their number is limited, and each
has one deadline for the whole handshake. At the limit, the oldest connection of the address with the most connections
is closed: a regular peer authenticates within a few milliseconds.
"""

import contextlib
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
from workers.transport.encryption import PLAIN, Encryption, instances_of
from workers.transport.errors import ConnectionClosed, Interrupted
from workers.transport.handshake import ENCRYPT, HANDSHAKE_S, Answer, Greeting, KeyOf, Peer

log = logging.getLogger(__name__)

BACKLOG = 256
ROOM = 256
"""Limit of unauthenticated connections."""
SHARE_OF_DESCRIPTORS = 4
"""They may use at most one in this many of the process's descriptors."""
AT_ONCE = 16
"""Connections accepted before pending handshakes are read again."""
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
    """Until TLS is agreed on."""


class Acceptor:
    """Listens on a free port of ``host`` from creation until ``close``; ``admit`` gets each connection with its peer.

    Args:
        host: the address to listen at.
        key_of: the key that a peer shares with this server.
        admit: called on the acceptor's thread, with a blocking socket that is its own from then on.
        encryption: how connections are encrypted, if they are.
        room: limit of unauthenticated connections; by default ``ROOM``, or fewer where descriptors are scarce.
    """

    def __init__(
        self, host: str, key_of: KeyOf, admit: Admit, *, encryption: Encryption = PLAIN, room: int | None = None
    ) -> None:
        self._key_of, self._admit, self._encryption = key_of, admit, encryption
        self._room = room or min(ROOM, max(1, allow_descriptors() // SHARE_OF_DESCRIPTORS))
        self._inside: dict[Pending, None] = {}
        self._closed = threading.Event()
        self._put_out, self._last, self._logged_at = 0, "", -LOG_EVERY_S
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="acceptor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting, and close pending connections."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(CLOSE_S)
        self._socket.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            ready = self._selector.select(self._patience_s())
            for key, _ in ready:
                if key.data is not None:
                    self._hear(key.data)
            self._end_overdue()
            if any(key.data is None for key, _ in ready) and not self._accept():
                self._closed.wait(PAUSE_S)
            self._log_rejected()
        for pending in list(self._inside):
            self._end(pending)
        self._selector.close()

    def _accept(self) -> bool:
        """Accept some connections; False if the limit was reached."""
        is_room = True
        for _ in range(AT_ONCE):
            try:
                connected, (address, *_) = self._socket.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if not self._closed.is_set():
                    self._put_out_one(f"no connection can be accepted: {error}")
                return False
            self._let_in(connected, address)
            if len(self._inside) > self._room:
                self._put_out_one(f"more than {self._room} were not authenticated")
                is_room = False
        return is_room

    def _let_in(self, connected: socket.socket, address: str) -> None:
        pending = Pending(connected, address, Greeting(self._key_of), time.monotonic() + HANDSHAKE_S)
        connected.setblocking(False)
        self._inside[pending] = None
        self._selector.register(connected, selectors.EVENT_READ, pending)
        if not self._encryption.encrypts:
            self._send(pending, pending.greeting.opening)
        elif self._send(pending, ENCRYPT):
            self._begin_encryption(pending)

    def _begin_encryption(self, pending: Pending) -> None:
        """The same descriptor from then on, in another object: update the selector."""
        self._selector.unregister(pending.connected)
        try:
            pending.connected = pending.encrypting = self._encryption.accept(pending.connected)
        except OSError as error:  # it has ended already
            del self._inside[pending]
            pending.connected.close()
            self._note(f"{pending.address}: {error}")
        else:
            self._selector.register(pending.connected, selectors.EVENT_READ, pending)

    def _is_encrypted(self, pending: Pending) -> bool:
        """Whether TLS is agreed on where it should be; then the handshake within continues."""
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

    def _hear(self, pending: Pending) -> None:
        if pending not in self._inside or not self._is_encrypted(pending):
            return
        try:
            answer = None
            while answer is None:  # what TLS has decrypted wakes no selector
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
        """Whether the frame was sent: a few bytes always fit, unless the peer is lost."""
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
        for pending in list(self._inside):
            if pending.until > now:
                break
            self._end(pending, f"not authenticated within {HANDSHAKE_S:g} s")

    def _put_out_one(self, reason: str) -> None:
        """Close the oldest connection of the address that has the most."""
        if not self._inside:
            self._note(reason)
            return
        counts = Counter(pending.address for pending in self._inside)
        self._end(max(self._inside, key=lambda pending: counts[pending.address]), reason)

    def _end(self, pending: Pending, reason: str = "") -> None:
        self._leave(pending)
        pending.connected.close()
        if reason:
            self._note(f"{pending.address}: {reason}")

    def _leave(self, pending: Pending) -> None:
        del self._inside[pending]
        self._selector.unregister(pending.connected)

    def _note(self, reason: str) -> None:
        self._put_out, self._last = self._put_out + 1, reason

    def _log_rejected(self) -> None:
        now = time.monotonic()
        if self._put_out and now - self._logged_at >= LOG_EVERY_S:
            log.warning("%d connections ended before they were authenticated; the last: %s", self._put_out, self._last)
            self._put_out, self._logged_at = 0, now

    def _patience_s(self) -> float | None:
        """Seconds until the first deadline or log line; the oldest connection has the first deadline."""
        now = time.monotonic()
        due = [pending.until for pending in list(self._inside)[:1]]
        if self._put_out:
            due.append(self._logged_at + LOG_EVERY_S)
        return max(0.0, min(due) - now) if due else None


def _read(pending: Pending) -> bytes:
    """Read what is due and no more: what follows the handshake is for the session.

    Raises:
        ConnectionClosed: if the peer ended it.
    """
    data = pending.connected.recv(pending.greeting.due)
    if not data:
        raise ConnectionClosed("the peer closed it during the handshake")
    return data
