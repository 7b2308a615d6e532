"""The sockets of one job in this process: what they say goes into one log, and each gets its own frames."""

from dataclasses import dataclass

from controlplane.gateway import closing
from controlplane.gateway.appending import Appender
from controlplane.gateway.sockets import Socket
from controlplane.protocol.codec import encode
from controlplane.protocol.orders import Durable, Role
from controlplane.runtime.durable import numbers_decoder
from controlplane.runtime.executor import frames_decoder
from controlplane.runtime.wire import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One life of one process of a job, as its credential has it."""

    job: int
    role: Role
    index: int
    instance: str

    @property
    def name(self) -> str:
        """As presence and ``TimePassed.seen`` call it."""
        return f"{self.role}:{self.index}:{self.instance}"


class Room:
    """One job's sockets. A second connection of the same process replaces the first."""

    def __init__(self, caller: Caller, job: int) -> None:
        self.job = job
        self.guests = 0
        """Connections that use it, some of which may not have entered yet."""
        self.appender = Appender(caller, job, self._append_failed)
        self._sockets: dict[tuple[str, int, str], Socket] = {}
        self._durable: dict[str, int] = {}
        """Numbers that have risen since senders were last told, by instance."""

    @property
    def sockets(self) -> list[Socket]:
        """All of them."""
        return list(self._sockets.values())

    def enter(self, peer: Peer, socket: Socket) -> None:
        """From now on the process is reached through ``socket``."""
        before = self._sockets.get((peer.role, peer.index, peer.instance))
        if before is not None:
            before.close(closing.REPLACED)
        self._sockets[peer.role, peer.index, peer.instance] = socket

    def leave(self, peer: Peer, socket: Socket) -> bool:
        """Forget ``socket``; False where it had been replaced."""
        key = (peer.role, peer.index, peer.instance)
        if self._sockets.get(key) is not socket:
            return False
        del self._sockets[key]
        return True

    def deliver(self, data: bytes) -> None:
        """Give each socket its own of the frames that a commit published."""
        for frame in frames_decoder.decode(data):
            socket = self._sockets.get((frame.role, frame.index, frame.instance))
            if socket is not None:
                socket.put(frame.data, frame.slot)

    def note_durable(self, data: bytes) -> None:
        """Numbers have risen; whoever they are about is told soon."""
        self._durable |= numbers_decoder.decode(data)

    def tell_durable(self) -> None:
        """Tell each sender how far it may forget what it said."""
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
        """Senders keep what is not durable: they come back and say it again."""
        self.close_all(closing.JOB_OVER if over else closing.TRY_AGAIN)
