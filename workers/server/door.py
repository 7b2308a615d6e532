"""Where connections come in: one thread accepts all, and hands on those that have proved who they are.

Whoever has not costs a descriptor and a few hundred bytes, no thread. There is room for few of them, each has one
deadline from being accepted to its proof, and when the room is full one of the address that has most in it is put
out, the oldest: who proves himself at once is in the room for a few milliseconds.
"""

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from workers.descriptors import allow_descriptors
from workers.transport.errors import ConnectionClosed, Interrupted
from workers.transport.handshake import HANDSHAKE_S, Answer, Greeting, KeyOf, Peer

log = logging.getLogger(__name__)

BACKLOG = 256
ROOM = 256
"""Most connections that have not proved who they are."""
SHARE_OF_DESCRIPTORS = 4
"""And no more than one in so many of the descriptors that this process may have: the others are for its work."""
AT_ONCE = 16
"""Connections accepted before those that are in the room are heard again."""
PAUSE_S = 0.02
"""Rest after connections were put out or could not be accepted: a flood is not to have the processor.

Under one, 800 a second are let in, so that each has a third of a second in the room, and as long outside.
"""
CLOSE_S = 5.0
TELL_S = 10.0
"""How often it is said at most that connections were put out."""

Admit = Callable[[socket.socket, Peer], None]


@dataclass(slots=True, eq=False)
class Visitor:
    """A connection that has not proved who it is."""

    connected: socket.socket
    address: str
    greeting: Greeting
    until: float
    """When its time is over."""


class Door:
    """Listens on a free port of ``host`` from creation until ``close``; ``admit`` gets each connection with its peer.

    Args:
        host: the address to listen at.
        key_of: the key that a peer shares with this server.
        admit: called on the door's thread, with a blocking socket that is its own from then on.
        room: most connections that have not proved who they are; by default few, and fewer where descriptors are.
    """

    def __init__(self, host: str, key_of: KeyOf, admit: Admit, *, room: int | None = None) -> None:
        self._key_of, self._admit = key_of, admit
        self._room = room or min(ROOM, max(1, allow_descriptors() // SHARE_OF_DESCRIPTORS))
        self._inside: dict[Visitor, None] = {}
        self._closed = threading.Event()
        self._put_out, self._last, self._told_at = 0, "", -TELL_S
        self._socket = socket.create_server((host, 0), backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let nobody in any more, and put out whoever waits."""
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
            self._tell()
        for visitor in list(self._inside):
            self._end(visitor)
        self._selector.close()

    def _accept(self) -> bool:
        """Let some of those in who stand outside; whether there was room for all of them."""
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
                self._put_out_one(f"{self._room} had not proved who they are, and more came")
                is_room = False
        return is_room

    def _let_in(self, connected: socket.socket, address: str) -> None:
        visitor = Visitor(connected, address, Greeting(self._key_of), time.monotonic() + HANDSHAKE_S)
        connected.setblocking(False)
        self._inside[visitor] = None
        self._selector.register(connected, selectors.EVENT_READ, visitor)
        self._send(visitor, visitor.greeting.opening)

    def _hear(self, visitor: Visitor) -> None:
        if visitor not in self._inside:
            return
        try:
            answer = visitor.greeting.take(_read(visitor))
        except BlockingIOError:
            return
        except (OSError, Interrupted) as error:
            self._end(visitor, str(error))
            return
        if answer is not None and self._send(visitor, answer.frame):
            self._conclude(visitor, answer)

    def _conclude(self, visitor: Visitor, answer: Answer) -> None:
        if answer.peer is None:
            self._end(visitor, answer.refused)
            return
        self._leave(visitor)
        try:
            visitor.connected.setblocking(True)
            self._admit(visitor.connected, answer.peer)
        except Exception as error:  # whatever it is, the door stays open for the others
            visitor.connected.close()
            log.error("%s %d cannot be served: %s", answer.peer.role, answer.peer.rank, error)

    def _send(self, visitor: Visitor, frame: bytes) -> bool:
        """Whether all of it could be sent: a few bytes always fit, unless the peer is gone."""
        try:
            if visitor.connected.send(frame) == len(frame):
                return True
            reason = "it takes nothing"
        except OSError as error:
            reason = str(error)
        self._end(visitor, reason)
        return False

    def _end_overdue(self) -> None:
        """In the order in which they came, which is that of their deadlines."""
        now = time.monotonic()
        for visitor in list(self._inside):
            if visitor.until > now:
                break
            self._end(visitor, f"it did not prove who it is within {HANDSHAKE_S:g} s")

    def _put_out_one(self, reason: str) -> None:
        """Of the address that has most inside, the oldest."""
        if not self._inside:
            self._note(reason)
            return
        counts = Counter(visitor.address for visitor in self._inside)
        self._end(max(self._inside, key=lambda visitor: counts[visitor.address]), reason)

    def _end(self, visitor: Visitor, reason: str = "") -> None:
        self._leave(visitor)
        visitor.connected.close()
        if reason:
            self._note(f"{visitor.address}: {reason}")

    def _leave(self, visitor: Visitor) -> None:
        del self._inside[visitor]
        self._selector.unregister(visitor.connected)

    def _note(self, reason: str) -> None:
        self._put_out, self._last = self._put_out + 1, reason

    def _tell(self) -> None:
        now = time.monotonic()
        if self._put_out and now - self._told_at >= TELL_S:
            log.warning("%d connections ended before they proved who they are; the last: %s", self._put_out, self._last)
            self._put_out, self._told_at = 0, now

    def _patience_s(self) -> float | None:
        """Until the first deadline, or what is to be told; the oldest inside has the first."""
        now = time.monotonic()
        due = [visitor.until for visitor in list(self._inside)[:1]]
        if self._put_out:
            due.append(self._told_at + TELL_S)
        return max(0.0, min(due) - now) if due else None


def _read(visitor: Visitor) -> bytes:
    """What is due and no more: what follows a handshake is not the door's.

    Raises:
        ConnectionClosed: if the peer ended it.
    """
    data = visitor.connected.recv(visitor.greeting.due)
    if not data:
        raise ConnectionClosed("it was ended in the handshake")
    return data
