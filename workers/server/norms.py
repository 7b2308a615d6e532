"""The norm of a gradient whose blocks are on several servers: each server sends the others the parts of its blocks.

When an iteration of a block is complete, the squared norm of its mean gradient is sent to every other server in the
orders. The step is applied once the norms of all elements are known, so all servers clip by the same number. A part
belongs to its block: it is transferred with a block that moves and resent to a server that joins; repeated parts are
ignored.

A server applies its step only when all others have its part: otherwise a worker could pull the next version from it
and, if the server then failed, its part could not be sent again.
"""

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from controlplane.protocol.base import UNREADABLE, Count, Value
from controlplane.protocol.orders import ServerAddress
from controlplane.protocol.spec import MAX_SERVERS
from workers.transport.client import ServerConnection
from workers.transport.errors import BadHeader, Refused, TransportError

log = logging.getLogger(__name__)

KEPT = 4
"""Number of iterations for which each block's norm is kept. No server is more than one iteration ahead of another: none
can apply the next step before all have sent their parts of this one.
"""

PAUSE_S = 0.1
MOST_AT_ONCE = 10_000
MOST_UNNAMED = 100_000
"""Maximum number of parts kept from all servers that are not in the orders yet; others are refused, and sent again
later.
"""

KEPT_AFTER_LEAVING = 64
"""Number of remembered servers that are no longer in the orders (or as many as there are in the orders): their parts
stay valid.
"""

SMALLEST_BLOCK = 1024
"""Minimum size of a block in elements. Blocks are shorter only at a tensor's end, or if a tensor is split evenly over
all servers.
"""

Connect = Callable[[ServerAddress], ServerConnection]


class Part(Value, frozen=True, kw_only=True, array_like=True):
    """A block's part of the squared norm of an iteration's mean gradient."""

    iteration: Count
    start: Count
    """Offset of the block in the flat vector."""
    size: Count
    """Number of its elements."""
    squared: float


class Norms:
    """The parts of this server and the others, and the blocks of this server that wait for them.

    Args:
        sizes: elements of each tensor in the flat vector; a norm is known when all are covered.
        connect: connects to another server, to send it parts.
        settle: applies the steps of blocks whose norm is known; called on a separate thread.
        on_failure: called with exceptions of ``settle``.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        connect: Connect,
        settle: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._elements, self._connect = sum(sizes), connect
        self._most_blocks = sum(min(size, MAX_SERVERS + size // SMALLEST_BLOCK) for size in sizes)
        self._settle, self._on_failure = settle, on_failure
        self._condition = threading.Condition()
        self._own: dict[tuple[int, int], Part] = {}
        self._published: list[Part] = []
        """All parts in ``_own`` and those that they replaced, in the order in which they were added."""
        self._forgotten = 0
        """Number of parts before the first of these."""
        self._theirs: dict[str, dict[tuple[int, int], Part]] = {}
        self._named: dict[str, None] = {}
        """Instances in the orders, the newest last: messages of others are ignored. Also the last ones no longer in the
        orders.
        """
        self._lines: dict[str, _Line] = {}
        self._is_due = self._stopped = False
        threading.Thread(target=self._run, name="norms", daemon=True).start()

    def follow(self, others: Iterable[ServerAddress]) -> None:
        """Send to these servers from now on, and accept their parts. Parts already accepted from others stay valid."""
        with self._condition:
            wanted = {address.instance: address for address in others}
            for instance in self._lines.keys() - wanted.keys():
                self._lines.pop(instance).stop()
            for instance, address in wanted.items():
                self._named.pop(instance, None)
                self._named[instance] = None
                if instance not in self._lines:
                    self._lines[instance] = _Line(self, address)
            most = len(wanted) + max(len(wanted), KEPT_AFTER_LEAVING)
            for instance in list(self._named)[:-most]:
                del self._named[instance]
                self._theirs.pop(instance, None)
            self._wake()

    def say(self, part: Part) -> None:
        """A block of this server has completed that iteration, possibly before it was moved here."""
        with self._condition:
            if self._own.get((part.iteration, part.start)) != part:
                self._own[part.iteration, part.start] = part
                self._published.append(part)
                self._forget()
            self._wake()

    def receive(self, instance: str, payload: bytes) -> None:
        """Accept parts of another server.

        Raises:
            BadHeader: if they are not parts of this job's norms: the job's blocks limit what a server may send.
            Refused: if no orders have named the server yet, and such servers have sent too many parts.
        """
        try:
            parts = msgspec.msgpack.decode(payload, type=list[Part])
        except UNREADABLE as error:
            raise BadHeader(f"no norms of blocks: {error}") from None
        for part in parts:
            if not part.size or part.start + part.size > self._elements:
                raise BadHeader(f"a norm of {part.size} elements from {part.start} on, of {self._elements}")
        with self._condition:
            found = self._theirs.get(instance, {}) | {(part.iteration, part.start): part for part in parts}
            _keep_newest(found)
            most = max(Counter(iteration for iteration, _ in found).values(), default=0)
            if most > self._most_blocks:
                raise BadHeader(f"norms of {most} blocks in one iteration, the job has at most {self._most_blocks}")
            if instance not in self._named and len(found) + self._unnamed_beside(instance) > MOST_UNNAMED:
                raise Refused(f"orders do not name {instance} yet, and {MOST_UNNAMED} norms of such servers are kept")
            self._theirs[instance] = found
            self._wake()

    def poke(self) -> None:
        """Check again for blocks whose step can be applied."""
        with self._condition:
            self._wake()

    def norm(self, iteration: int) -> float | None:
        """The norm of the iteration's mean gradient, once all parts are known and all others
        have those of this server.
        """
        with self._condition:
            forgotten = self._forgotten + max(
                (at + 1 for at, part in enumerate(self._published) if part.iteration == iteration), default=0
            )
            if any(line.has < forgotten for line in self._lines.values()):
                return None
            parts: dict[int, Part] = {}
            for source in (*(self._theirs.get(instance, {}) for instance in self._named), self._own):
                parts |= {start: part for (of, start), part in source.items() if of == iteration}
            if sum(part.size for part in parts.values()) < self._elements:
                return None
            # The same order on all servers, so that all compute exactly the same number.
            return math.sqrt(sum(parts[start].squared for start in sorted(parts)))

    def stop(self) -> None:
        """Stop sending."""
        with self._condition:
            self._stopped = True
            for line in self._lines.values():
                line.stop()
            self._condition.notify_all()

    def await_unsaid(self, line: "_Line") -> tuple[list[Part], int]:
        """Wait for parts that the server has not received yet; return them, and how many it has afterwards.

        None once the connection has ended.
        """
        with self._condition:
            self._condition.wait_for(
                lambda: line.is_over or self._stopped or line.has < self._forgotten + len(self._published)
            )
            if line.is_over or self._stopped:
                return [], line.has
            first = max(line.has, self._forgotten)
            parts = self._published[first - self._forgotten :][:MOST_AT_ONCE]
            return parts, first + len(parts)

    def note_received(self, line: "_Line", count: int) -> None:
        """The server has received this many parts."""
        with self._condition:
            line.has = count
            self._wake()

    @property
    def connect(self) -> Connect:
        """Connect to another server."""
        return self._connect

    def _unnamed_beside(self, instance: str) -> int:
        return sum(len(parts) for of, parts in self._theirs.items() if of not in self._named and of != instance)

    def _wake(self) -> None:
        self._is_due = True
        self._condition.notify_all()

    def _forget(self) -> None:
        _keep_newest(self._own)
        oldest = min(iteration for iteration, _ in self._own)
        while self._published and self._published[0].iteration < oldest:
            self._published.pop(0)
            self._forgotten += 1

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._is_due or self._stopped)
                self._is_due = False
                if self._stopped:
                    return
            try:
                self._settle()
            except Exception as error:  # a step would not be applied: workers must not wait for this server forever
                self._on_failure(error)
                return


class _Line:
    """A thread that sends all parts to one other server until they are acknowledged."""

    def __init__(self, norms: Norms, address: ServerAddress) -> None:
        self._norms, self._address = norms, address
        self._over = threading.Event()
        self._connection: ServerConnection | None = None
        self.has = 0
        """Number of parts that it has acknowledged."""
        threading.Thread(target=self._run, name="norms-line", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether sending has stopped."""
        return self._over.is_set()

    def stop(self) -> None:
        """Stop sending."""
        self._over.set()
        if (connection := self._connection) is not None:
            connection.abort()

    def _run(self) -> None:
        while not self.is_over:
            parts, count = self._norms.await_unsaid(self)
            if not parts:
                break
            try:
                if self._connection is None:
                    self._connection = self._norms.connect(self._address)
                self._connection.send_norms(msgspec.msgpack.encode(parts))
            except TransportError as error:
                log.info("server %d has not received norms yet: %s", self._address.index, error)
                self._close()
                self._over.wait(PAUSE_S)
            else:
                self._norms.note_received(self, count)
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _keep_newest(parts: dict[tuple[int, int], Part]) -> None:
    newest = max((iteration for iteration, _ in parts), default=0)
    for key in [key for key in parts if key[0] <= newest - KEPT]:
        del parts[key]
