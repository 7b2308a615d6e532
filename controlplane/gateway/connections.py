"""The connections of one job in this process: their messages go to the job's log, and each receives its own frames."""

from dataclasses import dataclass

from controlplane.gateway import close_codes
from controlplane.gateway.appender import Appender
from controlplane.gateway.sockets import Socket
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import Durable, Role
from controlplane.runtime import tracing
from controlplane.runtime.durable import numbers_decoder
from controlplane.runtime.executor import frames_decoder
from controlplane.runtime.wire import Caller


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


class JobConnections:
    """The sockets of one job. A second connection of the same process replaces the first."""

    def __init__(self, caller: Caller, job: int) -> None:
        self.job = job
        self.users = 0
        """Connections that use this object, including those that have not called ``enter`` yet."""
        self.appender = Appender(caller, job, self._append_failed)
        self._sockets: dict[tuple[str, int, str], Socket] = {}
        self._durable: dict[str, int] = {}
        """By instance, durable message numbers that senders have not received yet."""

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

    def leave(self, peer: Peer, socket: Socket) -> bool:
        """Forget ``socket``; returns False if it had been replaced."""
        key = (peer.role, peer.index, peer.instance)
        if self._sockets.get(key) is not socket:
            return False
        del self._sockets[key]
        return True

    def deliver(self, data: bytes) -> None:
        """Distribute the frames of a commit to their sockets."""
        for frame in frames_decoder.decode(data):
            socket = self._sockets.get((frame.role, frame.index, frame.instance))
            if socket is not None:
                sent = tracing.sending(frame.parent, self.job, frame.index) if frame.parent else None
                socket.put(frame.data, frame.slot, sent)

    def note_durable(self, data: bytes) -> None:
        """Store higher durable numbers for the next ``send_durable``."""
        self._durable |= numbers_decoder.decode(data)

    def send_durable(self) -> None:
        """Send each sender the number up to which it need not resend messages."""
        risen, self._durable = self._durable, {}
        if risen:
            for (_, _, instance), socket in self._sockets.items():
                if (number := risen.get(instance)) is not None:
                    socket.put(encode(Durable(number=number)), "durable")

    def close_all(self, code: int) -> None:
        """End every connection."""
        for socket in self.sockets:
            socket.close(code)

    def _append_failed(self, over: bool) -> None:
        """Close the connections: senders keep messages until they are durable, so they reconnect and resend them."""
        self.close_all(close_codes.JOB_OVER if over else close_codes.TRY_AGAIN)
