"""The interface of a process's control socket to its loop. Implementations are thread-safe and survive reconnects."""

from collections.abc import Callable
from threading import Event
from typing import Protocol

from controlplane.protocol.messages import ServerMessage, WorkerMessage
from controlplane.protocol.orders import Orders, Placement, ServerOrders


class WorkerLink(Protocol):
    """A worker's messages and orders. ``stopping`` is set when the agent requests the process to end."""

    stopping: Event

    @property
    def in_reach(self) -> bool:
        """Whether the control plane is connected; if so, it would report a server that is permanently lost."""

    def say(self, build: Callable[[int], WorkerMessage]) -> None:
        """Send ``build(number)``, now or after the next reconnect; it is kept until it is durable."""

    def orders(self) -> Orders | None:
        """The newest orders, if any have arrived."""

    def await_orders(self, accept: Callable[[Orders], bool], timeout_s: float | None = None) -> Orders | None:
        """Wait for orders that ``accept``; None after ``timeout_s`` or when stopping."""

    def placement(self) -> Placement | None:
        """The newest placement, if any has arrived."""

    def await_placement(self, version: int, timeout_s: float | None = None) -> Placement | None:
        """Wait for the placement of at least that version; None after ``timeout_s`` or when stopping."""


class ServerLink(Protocol):
    """A server's messages and orders."""

    stopping: Event

    def say(self, build: Callable[[int], ServerMessage]) -> None:
        """As ``WorkerLink.say``."""

    def on_orders(self, take: Callable[[ServerOrders], None]) -> None:
        """Call ``take`` with the newest orders, now if there are any and whenever newer ones arrive."""
