"""Messages that are not durable yet: numbered from 1, kept in order, resent where needed. Pure.

A driver owns the connection. It adds messages at any time, and sends those that it takes::

    outbox.say(hello)                     # the first message opens every connection
    outbox.reopen()                       # a new connection
    while message := outbox.take(): ...   # send it
    outbox.acknowledge(durable)           # the control plane keeps all messages up to that number
    outbox.resend_from(number, incarnation)  # it refused a message as out of order, and waits for that one
    outbox.observe_incarnation(incarnation)  # a newer control plane may know only what is durable

Within a connection messages are sent in the order of their numbers without gaps, so the other side has a gap only if it
lost data itself. If it lost messages that it had reported as durable, as after a restore of an older database dump, the
kept messages are numbered from there on. The engine recognizes repetitions by a worker's or server's numbers: a message
keeps its number, and the renewed hello follows the kept messages. The gateway requires an agent's hello first and
handles its messages by their content, so an agent's messages are numbered again after each hello (``renumber``).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import msgspec

Message = TypeVar("Message", bound=msgspec.Struct)


class Kept(NamedTuple, Generic[Message]):
    """A message that is not durable yet, and the function that built it."""

    number: int
    build: Callable[[int], Message] | None
    """None: its content is independent of its number."""
    message: Message


class Outbox(Generic[Message]):
    """Messages of one process, from ``say`` until they are durable.

    Args:
        renumber: whether each connection starts with the hello, and the rest is numbered after it.
    """

    __slots__ = (
        "_acknowledged",
        "_acknowledged_in",
        "_ever_sent",
        "_hello",
        "_incarnation",
        "_kept",
        "_last",
        "_renumber",
        "_sent",
    )

    def __init__(self, *, renumber: bool = False) -> None:
        self._renumber = renumber
        self._hello: Callable[[int], Message] | None = None
        self._kept: deque[Kept[Message]] = deque()
        self._last = 0
        self._sent = 0
        """The highest number sent on this connection."""
        self._ever_sent = 0
        self._incarnation: int | None = None
        self._acknowledged = 0
        """The highest number that was reported as durable on this connection."""
        self._acknowledged_in: int | None = None
        """The incarnation in which a number was last reported as durable."""

    # -- messages

    def say(self, build: Callable[[int], Message]) -> int:
        """Store ``build(number)`` under the next number; return the number."""
        self._hello = self._hello or build
        self._keep(build)
        return self._last

    def take(self) -> Message | None:
        """The next message to send on this connection, if there is one."""
        if self._sent >= self._last:
            return None
        kept = self._kept[self._sent + 1 - self._first]
        self._sent = kept.number
        self._ever_sent = max(self._ever_sent, self._sent)
        return kept.message

    # -- inputs

    def reopen(self) -> None:
        """Start a new connection: messages that are not durable are resent, after a new hello."""
        self._acknowledged = 0
        if self._hello is None:
            return
        if self._renumber:
            self._renumber_behind(self._hello)
            return
        self._sent = self._first - 1
        if not any(kept.build is self._hello and kept.number > self._ever_sent for kept in self._kept):
            self._keep(self._hello)

    def resend(self, number: int = 0) -> None:
        """Resend all messages from that number on that are not durable."""
        self._sent = min(self._sent, max(self._first, number) - 1)

    def resend_from(self, number: int, incarnation: int) -> int:
        """Resend from the message that the other side waits for, in that incarnation; return how many messages it lost.

        Lost messages are those that it reported as durable in an earlier incarnation and does not have any more: the
        kept messages are then numbered from ``number`` on. Late rejections of messages that have become durable have no
        effect.
        """
        lost = self._first - number
        is_newer = incarnation > (self._acknowledged_in or 0)
        if number < 1 or lost <= 0 or self._acknowledged >= number or not is_newer:
            self.resend(number)
            return 0
        builds = [kept.build or partial(_renumbered, kept.message) for kept in self._kept]
        self._kept.clear()
        self._last = self._sent = self._ever_sent = number - 1
        self._acknowledged_in = incarnation
        for build in builds:
            self._keep(build)
        return lost

    def observe_incarnation(self, incarnation: int) -> bool:
        """Record the incarnation of received orders; return whether it is newer than before, so that all messages are
        resent.
        """
        before = self._incarnation
        self._incarnation = incarnation if before is None else max(before, incarnation)
        if before is None or incarnation <= before:
            return False
        self.resend()
        return True

    def acknowledge(self, durable: int) -> None:
        """Drop messages that need not be resent; those never sent are always kept."""
        durable = min(durable, self._ever_sent)
        self._acknowledged = max(self._acknowledged, durable)
        while self._kept and self._first <= durable:
            self._kept.popleft()
            self._acknowledged_in = self._incarnation
        self._sent = max(self._sent, durable)

    # -- state

    @property
    def last(self) -> int:
        """The highest assigned number; 0 before the first message."""
        return self._last

    @property
    def opened(self) -> bool:
        """Whether a hello was sent."""
        return self._ever_sent > 0

    @property
    def all_sent(self) -> bool:
        """Whether all messages were taken on this connection."""
        return self._sent >= self._last

    @property
    def pending(self) -> list[Message]:
        """The kept messages."""
        return [kept.message for kept in self._kept]

    @property
    def unacknowledged(self) -> int:
        """Number of kept messages."""
        return len(self._kept)

    @property
    def _first(self) -> int:
        return self._kept[0].number if self._kept else self._last + 1

    def _renumber_behind(self, hello: Callable[[int], Message]) -> None:
        """Numbers that were never sent can be reused. The hello may depend on ``pending``."""
        self._sent = self._last = self._ever_sent
        builds = [kept.build for kept in self._kept if kept.build is not None and kept.build is not hello]
        messages = [build(self._last + 1 + place) for place, build in enumerate([hello, *builds])]
        self._kept.clear()
        for build, message in zip([hello, *builds], messages, strict=True):
            self._last += 1
            self._kept.append(Kept(self._last, build, message))

    def _keep(self, build: Callable[[int], Message]) -> None:
        is_made_again = self._renumber or build is self._hello
        kept = Kept(self._last + 1, build if is_made_again else None, build(self._last + 1))
        self._last = kept.number
        self._kept.append(kept)


def _renumbered(message: Message, number: int) -> Message:
    return msgspec.structs.replace(message, number=number)
