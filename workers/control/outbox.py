"""What was said and is not durable yet, numbered from 1 and kept in order.

The first message said is the hello: it opens every connection. A worker's or server's numbers are what the engine
tells repetitions by, so what was said keeps its number and the renewed hello comes after it. The gateway wants an
agent's hello first and takes its messages by their content, so an agent's are numbered anew behind each hello.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import msgspec

Message = TypeVar("Message", bound=msgspec.Struct)


class Kept(NamedTuple, Generic[Message]):
    """A message that is not durable yet, and how it was made."""

    number: int
    build: Callable[[int], Message]
    message: Message


class Outbox(Generic[Message]):
    """Messages of one process, from being said to being durable. Thread-safe."""

    def __init__(self, *, renumber: bool = False) -> None:
        self._renumber = renumber
        self._changed = threading.Condition()
        self._hello: Callable[[int], Message] | None = None
        self._kept: deque[Kept[Message]] = deque()
        self._last = 0
        self._taken = 0
        """The highest number handed out on this connection."""
        self._ever_taken = 0

    def say(self, build: Callable[[int], Message]) -> None:
        """Number and keep ``build(number)``. It must not call back into whoever holds the outbox."""
        with self._changed:
            self._hello = self._hello or build
            self._keep(build)
            self._changed.notify_all()

    def reopen(self) -> None:
        """A new connection: whatever is not durable is to be sent again, with a fresh hello."""
        with self._changed:
            if self._hello is None:
                return
            if self._renumber:
                self._renumber_behind(self._hello)
            else:
                self._taken = self._first - 1
                if not any(kept.build is self._hello and kept.number > self._ever_taken for kept in self._kept):
                    self._keep(self._hello)
            self._changed.notify_all()

    def resend(self, number: int = 0) -> None:
        """The other side missed something: send all again from that message on that is not durable."""
        with self._changed:
            self._taken = min(self._taken, max(self._first, number) - 1)
            self._changed.notify_all()

    def acknowledge(self, durable: int) -> None:
        """Forget what need not be sent again; what was never sent is kept, whatever anybody says."""
        with self._changed:
            durable = min(durable, self._ever_taken)
            while self._kept and self._first <= durable:
                self._kept.popleft()
            self._taken = max(self._taken, durable)
            self._changed.notify_all()

    def take(self, timeout_s: float, *, wanted: Callable[[], bool]) -> Message | None:
        """The next message to send; None after ``timeout_s`` or once it is no longer ``wanted``."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken < self._last or not wanted(), max(0.0, timeout_s))
            if self._taken >= self._last or not wanted():
                return None
            kept = self._kept[self._taken + 1 - self._first]
            self._taken = kept.number
            self._ever_taken = max(self._ever_taken, self._taken)
            return kept.message

    def wake(self) -> None:
        """Have all who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, done: Callable[["Outbox[Message]"], bool], timeout_s: float | None = None) -> bool:
        """Wait until ``done`` holds of this outbox (or of something that ``wake`` was called for)."""
        with self._changed:
            return self._changed.wait_for(lambda: done(self), timeout_s)

    @property
    def opened(self) -> bool:
        """Whether a hello was handed out."""
        return self._ever_taken > 0

    @property
    def all_sent(self) -> bool:
        """Whether everything said was handed out on this connection."""
        return self._taken >= self._last

    @property
    def pending(self) -> list[Message]:
        """What is kept."""
        with self._changed:
            return [kept.message for kept in self._kept]

    @property
    def unacknowledged(self) -> int:
        """How many messages are kept."""
        return len(self._kept)

    @property
    def _first(self) -> int:
        return self._kept[0].number if self._kept else self._last + 1

    def _renumber_behind(self, hello: Callable[[int], Message]) -> None:
        """Numbers that never left this process are free again. The hello may look at what is ``pending``."""
        self._taken = self._last = self._ever_taken
        builds = [kept.build for kept in self._kept if kept.build is not hello]
        messages = [build(self._last + 1 + place) for place, build in enumerate([hello, *builds])]
        self._kept.clear()
        for build, message in zip([hello, *builds], messages, strict=True):
            self._last += 1
            self._kept.append(Kept(self._last, build, message))

    def _keep(self, build: Callable[[int], Message]) -> None:
        kept = Kept(self._last + 1, build, build(self._last + 1))
        self._last = kept.number
        self._kept.append(kept)
