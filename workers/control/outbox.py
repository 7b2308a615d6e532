"""Messages that are not durable yet, for several threads: ``controlplane.protocol.outbox`` under one lock."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from controlplane.protocol import outbox

Message = TypeVar("Message", bound=msgspec.Struct)


class Outbox(Generic[Message]):
    """The messages of one process, from creation until they are durable. Thread-safe."""

    def __init__(self, *, renumber: bool = False) -> None:
        self._changed = threading.Condition()
        self._box: outbox.Outbox[Message] = outbox.Outbox(renumber=renumber)

    def say(self, build: Callable[[int], Message]) -> None:
        """Number and store ``build(number)``, which must not call the owner of the outbox."""
        with self._changed:
            self._box.say(build)
            self._changed.notify_all()

    def reopen(self) -> None:
        """Start a new connection: messages that are not durable are resent, after a new hello."""
        with self._changed:
            self._box.reopen()
            self._changed.notify_all()

    def resend(self, number: int = 0) -> None:
        """Resend all messages that are not durable, from that number on."""
        with self._changed:
            self._box.resend(number)
            self._changed.notify_all()

    def resend_from(self, number: int, incarnation: int) -> int:
        """Resend from the message that the other side waits for; return how many requested messages were durable here
        and lost there.
        """
        with self._changed:
            lost = self._box.resend_from(number, incarnation)
            self._changed.notify_all()
            return lost

    def observe_incarnation(self, incarnation: int) -> bool:
        """Record the incarnation of received orders; return whether it is newer than before, so that all messages are
        resent.
        """
        with self._changed:
            is_newer = self._box.observe_incarnation(incarnation)
            self._changed.notify_all()
            return is_newer

    def acknowledge(self, durable: int) -> None:
        """Drop messages that need not be resent; those never sent are always kept."""
        with self._changed:
            self._box.acknowledge(durable)
            self._changed.notify_all()

    def take(self, timeout_s: float, *, wanted: Callable[[], bool]) -> Message | None:
        """The next message to send; None after ``timeout_s`` or once it is no longer ``wanted``."""
        with self._changed:
            self._changed.wait_for(lambda: not self._box.all_sent or not wanted(), max(0.0, timeout_s))
            return self._box.take() if wanted() else None

    def wake(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, done: Callable[["Outbox[Message]"], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``done`` holds for this outbox (or for a state change after which ``wake`` was called)."""
        with self._changed:
            return self._changed.wait_for(lambda: done(self), timeout_s)

    @property
    def opened(self) -> bool:
        """Whether a hello was sent."""
        return self._box.opened

    @property
    def all_sent(self) -> bool:
        """Whether all messages were sent on this connection."""
        return self._box.all_sent

    @property
    def pending(self) -> list[Message]:
        """The kept messages."""
        with self._changed:
            return self._box.pending

    @property
    def unacknowledged(self) -> int:
        """Number of kept messages."""
        return self._box.unacknowledged
