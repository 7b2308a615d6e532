"""The links of a worker and of a server: implements the protocols of ``workers.link`` over one control socket."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from controlplane.protocol.codec import Codec, ServerReply, WorkerReply, to_server, to_worker
from controlplane.protocol.messages import Heartbeat, ServerMessage, WorkerMessage
from controlplane.protocol.orders import Durable, Orders, Placement, Rejection, ServerOrders
from workers.backoff import Backoff
from workers.control.outbox import Outbox
from workers.control.socket import (
    NEVER_ACCEPTED,
    NOT_WANTED,
    REPLACED,
    UNAUTHORISED,
    ControlSocket,
    Ending,
    Handlers,
    Route,
)

AFTER_MESSAGE_S = 1.25
"""The control plane counts a message of a process as a heartbeat. The next one is due a little later than after a
heartbeat (1 s), so that a process with iterations of a second sends none. A process is lost after 4 s of silence, and
one whose agent hangs needs up to 2.25 s to notice that and another way (``relay.process``)."""

FAREWELL_S = 1.0
"""How long an ending process still tries to send its messages."""
FINAL_REJECTIONS = {"stale": REPLACED, "unauthorised": UNAUTHORISED}
"""Rejections of this process instance rather than of one message; like these close codes, they end it."""

Sent = TypeVar("Sent", bound=msgspec.Struct)
Received = TypeVar("Received")
log = structlog.get_logger("control")


class Stopping(threading.Event):
    """The request to end; it wakes all other waits."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self._wake = wake

    def set(self) -> None:
        """Request the process to end."""
        super().set()
        self._wake()


class ProcessLink(Generic[Sent, Received]):
    """The common part of worker and server links. ``ending``: why the control plane ended it, if it did."""

    def __init__(self, route: Route, codec: Codec[Received], *, backoff: Backoff | None = None) -> None:
        self._changed = threading.Condition()
        self._outbox: Outbox[Sent] = Outbox()
        self.stopping: threading.Event = Stopping(self._wake)
        self.ending: Ending | None = None
        self.failure: BaseException | None = None
        handlers = Handlers(
            receive=self._receive, opened=lambda: log.info("connected to the control plane"), ended=self._ended
        )
        self._socket = ControlSocket(
            route,
            self._outbox,
            codec,
            handlers,
            heartbeat=Heartbeat,
            backoff=backoff,
            after_message_s=AFTER_MESSAGE_S,
        )

    @property
    def in_reach(self) -> bool:
        """Whether there is a connection."""
        return self._socket.connected

    def start(self) -> None:
        """Start connecting."""
        self._socket.start()

    def drain(self) -> None:
        """Wait until all messages are durable, or this process should end."""
        if not self._outbox.wait(lambda box: not box.unacknowledged or self.stopping.is_set(), FAREWELL_S):
            log.info(f"waiting for the control plane to keep {self._outbox.unacknowledged} messages")
            self._outbox.wait(lambda box: not box.unacknowledged or self.stopping.is_set())

    def close(self) -> None:
        """Send what is still unsent, if that is quick, and disconnect."""
        if self.ending is None and self._socket.connected:
            self._outbox.wait(lambda box: box.all_sent or not self._socket.connected, FAREWELL_S)
        self._socket.close()

    def say(self, build: Callable[[int], Sent]) -> None:
        """Send ``build(number)``, now or after the next reconnect; it is kept until it is durable."""
        self._outbox.say(build)

    def _take(self, reply: Received) -> None:
        raise NotImplementedError

    def _receive(self, reply: Received) -> None:
        if isinstance(reply, Rejection):
            self._rejected(reply)
            return
        if isinstance(reply, Durable):
            self._outbox.acknowledge(reply.number)
            return
        try:
            self._take(reply)
        except Exception as error:
            log.exception("orders could not be followed")
            self.failure = error
            self.stopping.set()

    def _say_again(self, incarnation: int) -> None:
        """Resend all: a new incarnation has only the durable messages."""
        if self._outbox.observe_incarnation(incarnation):
            log.info(f"the control plane continues in incarnation {incarnation}: saying again what it may have lost")

    def _rejected(self, rejection: Rejection) -> None:
        if rejection.code == "slow-down":
            self._socket.slow_down(rejection.number or 0)
            return
        log.warning(f"the control plane refused message {rejection.number}: {rejection.code}: {rejection.detail}")
        if code := FINAL_REJECTIONS.get(rejection.code):
            self._ended(Ending(code=code, reason=rejection.detail or rejection.code))
        elif rejection.code == "out-of-order":
            self._socket.resend_from(rejection.number or 0, rejection.incarnation)
        elif rejection.code in NEVER_ACCEPTED:
            self.failure = ValueError(f"the control plane cannot accept a message of this process: {rejection.detail}")
            self.stopping.set()

    def _ended(self, ending: Ending) -> None:
        say = log.info if ending.code in NOT_WANTED else log.error
        say(f"the control plane ended this process: {ending.reason}")
        self.ending = ending
        self.stopping.set()

    def _wake(self) -> None:
        self._outbox.wake()
        with self._changed:
            self._changed.notify_all()


class WorkerControl(ProcessLink[WorkerMessage, WorkerReply]):
    """The link of one worker."""

    def __init__(self, route: Route, *, backoff: Backoff | None = None) -> None:
        super().__init__(route, to_worker, backoff=backoff)
        self._orders: Orders | None = None
        self._placement: Placement | None = None

    def orders(self) -> Orders | None:
        """The newest orders, if any have arrived."""
        with self._changed:
            return self._orders

    def await_orders(self, accept: Callable[[Orders], bool], timeout_s: float | None = None) -> Orders | None:
        """Wait for orders that ``accept``; None after ``timeout_s`` or when stopping."""

        def settled() -> bool:
            return self.stopping.is_set() or (self._orders is not None and accept(self._orders))

        with self._changed:
            found = self._changed.wait_for(settled, timeout_s)
            return self._orders if found and not self.stopping.is_set() else None

    def placement(self) -> Placement | None:
        """The newest placement, if any has arrived."""
        with self._changed:
            return self._placement

    def await_placement(self, version: int, timeout_s: float | None = None) -> Placement | None:
        """Wait for the placement of at least that version; None after ``timeout_s`` or when stopping."""

        def settled() -> bool:
            return self.stopping.is_set() or (self._placement is not None and self._placement.version >= version)

        with self._changed:
            found = self._changed.wait_for(settled, timeout_s)
            return self._placement if found and not self.stopping.is_set() else None

    def _take(self, reply: WorkerReply) -> None:
        with self._changed:
            match reply:
                case Orders() if self._orders is None or reply.rank_in_time > self._orders.rank_in_time:
                    self._orders = reply
                    self._say_again(reply.incarnation)
                case Placement() if self._placement is None or _when(reply) > _when(self._placement):
                    self._placement = reply
            self._changed.notify_all()


class ServerControl(ProcessLink[ServerMessage, ServerReply]):
    """The link of one server. Orders are delivered one at a time, never an older one after a newer one."""

    def __init__(self, route: Route, *, backoff: Backoff | None = None) -> None:
        super().__init__(route, to_server, backoff=backoff)
        self._orders: ServerOrders | None = None
        self._follow: Callable[[ServerOrders], None] | None = None

    def on_orders(self, take: Callable[[ServerOrders], None]) -> None:
        """Call ``take`` with the newest orders, now if there are any and whenever newer ones arrive."""
        with self._changed:
            self._follow = take
            if self._orders is not None:
                take(self._orders)

    def _take(self, reply: ServerReply) -> None:
        if not isinstance(reply, ServerOrders):
            return
        with self._changed:
            if self._orders is None or reply.rank_in_time > self._orders.rank_in_time:
                self._orders = reply
                self._say_again(reply.incarnation)
                if self._follow is not None:
                    self._follow(reply)


def _when(placement: Placement) -> tuple[int, int, int]:
    return placement.incarnation, placement.version, placement.generation
