"""The connections of one job in this process: their messages go to the job's log, and each receives its own frames.

A sender also receives the number up to which its messages are durable, so that it need not keep them. That is rarely
urgent: the number goes along with the next orders if they come soon.
"""

from dataclasses import dataclass
from typing import Final

from controlplane.gateway import close_codes
from controlplane.gateway.appender import Appender
from controlplane.gateway.sockets import Socket
from controlplane.protocol.codec import encode
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Durable, Role
from controlplane.runtime import tracing
from controlplane.runtime.durable import numbers_decoder
from controlplane.runtime.executor import frames_decoder
from controlplane.runtime.wire import Caller

GATHERING_SOCKETS: Final = 8
"""A job with this many connections appends messages several at a time (``Appender.gathers``)."""

MOST_TURNS: Final = 2
"""The number of a process that reports iterations waits for its orders during this many calls of ``send_durable``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One process instance of a job, as its credential names it."""

    job: int
    role: Role
    index: int
    instance: str

    @property
    def name(self) -> str:
        """Its name in presence and ``TimePassed.seen``."""
        return f"{self.role}:{self.index}:{self.instance}"


@dataclass(slots=True)
class Unsent:
    """A durable number that its sender has not received, and how many calls of ``send_durable`` let it wait."""

    number: int
    turns: int = 0


class JobConnections:
    """The sockets of one job. A second connection of the same process replaces the first."""

    def __init__(self, caller: Caller, job: int) -> None:
        self.job = job
        self.users = 0
        """Connections that use this object, including those that have not called ``enter`` yet."""
        self.appender = Appender(caller, job, self._append_failed)
        self._sockets: dict[tuple[str, int, str], Socket] = {}
        self._unsent: dict[str, Unsent] = {}
        """By instance."""
        self._reporting: set[str] = set()
        """Instances whose last message was a report: orders follow."""

    @property
    def sockets(self) -> list[Socket]:
        """All sockets of the job."""
        return list(self._sockets.values())

    def socket_of(self, peer: Peer) -> Socket | None:
        """The process's socket; None if it is not connected here."""
        return self._sockets.get((peer.role, peer.index, peer.instance))

    def enter(self, peer: Peer, socket: Socket) -> None:
        """Send the process's frames through ``socket`` from now on."""
        before = self._sockets.get((peer.role, peer.index, peer.instance))
        if before is not None:
            before.close(close_codes.REPLACED)
        self._sockets[peer.role, peer.index, peer.instance] = socket
        self._unsent.pop(peer.instance, None)  # it receives the present number as it connects
        self.appender.gathers = len(self._sockets) >= GATHERING_SOCKETS

    def leave(self, peer: Peer, socket: Socket) -> bool:
        """Forget ``socket``; returns False if it had been replaced."""
        key = (peer.role, peer.index, peer.instance)
        if self._sockets.get(key) is not socket:
            return False
        del self._sockets[key]
        self._reporting.discard(peer.instance)
        self.appender.gathers = len(self._sockets) >= GATHERING_SOCKETS
        return True

    def heard(self, peer: Peer, message: object) -> None:
        """Record that the process sent a message."""
        if isinstance(message, IterationReport):
            self._reporting.add(peer.instance)
        else:
            self._reporting.discard(peer.instance)

    def deliver(self, data: bytes) -> None:
        """Distribute the frames of a commit to their sockets."""
        for frame in frames_decoder.decode(data):
            socket = self._sockets.get((frame.role, frame.index, frame.instance))
            if socket is not None:
                sent = tracing.sending(frame.parent, self.job, frame.index) if frame.parent else None
                socket.put(frame.data, frame.slot, sent)
                if (unsent := self._unsent.pop(frame.instance, None)) is not None:
                    socket.put(encode(Durable(number=unsent.number)), "durable")

    def note_durable(self, data: bytes) -> None:
        """Store higher durable numbers for the next orders or ``send_durable``."""
        for instance, number in numbers_decoder.decode(data).items():
            self._unsent.setdefault(instance, Unsent(number)).number = number

    def send_durable(self) -> None:
        """Send numbers to senders that get no orders soon; called regularly."""
        if not self._unsent:
            return
        waiting: dict[str, Unsent] = {}
        for (_, _, instance), socket in self._sockets.items():
            unsent = self._unsent.get(instance)
            if unsent is None:
                continue
            if instance in self._reporting and unsent.turns < MOST_TURNS:
                unsent.turns += 1
                waiting[instance] = unsent
            else:
                socket.put(encode(Durable(number=unsent.number)), "durable")
        self._unsent = waiting

    def close_all(self, code: int) -> None:
        """End every connection."""
        for socket in self.sockets:
            socket.close(code)

    def _append_failed(self, over: bool) -> None:
        """Close the connections: senders keep messages until they are durable, so they reconnect and resend them."""
        self.close_all(close_codes.JOB_OVER if over else close_codes.TRY_AGAIN)
