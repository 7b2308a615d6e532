"""All servers of a job as one place: pulls and pushes every block, in parallel over the servers that hold them.

A connection that breaks is made anew, and only what was not answered is asked for again. Servers count a
contribution once, so an answer that was lost does no harm.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.protocol.orders import Block, Placement, ServerAddress
from workers.transport.client import Outcome, ServerConnection
from workers.transport.errors import Interrupted, ServerLost, Stopped
from workers.transport.frames import Header
from workers.transport.handshake import Peer
from workers.workloads.shape import Vector

log = logging.getLogger(__name__)

RECONNECT_S = 30.0
"""How long a server may be away before the worker gives up; its agent reports a dead one much sooner."""
PAUSE_S = 0.1
WATCH_S = 0.2

Ask = Callable[[ServerConnection], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of asking all servers: whether to refresh, and how long the last of them to answer had held it back."""

    held_s: float
    stale: bool
    moved: bool


class Server:
    """One server and the connection to it, if there is one."""

    def __init__(self, address: ServerAddress, blocks: list[Block], peer: Peer, stopping: threading.Event) -> None:
        self.address, self.blocks = address, blocks
        self._peer, self._stopping = peer, stopping
        self._connection: ServerConnection | None = None

    def ask(self, ask: Ask) -> tuple[float, Outcome]:
        """Do ``ask`` on a connection, on a new one whenever it breaks; when that ended, and what came of it.

        Raises:
            ServerLost: if the server stays away.
            Stopped: if the process is asked to end meanwhile.
        """
        give_up = time.monotonic() + RECONNECT_S
        while True:
            try:
                outcome = ask(self._connected())
                return time.monotonic(), outcome
            except Interrupted as error:
                self.close()
                self._pause(error, give_up)

    def abort(self) -> None:
        """Wake whoever is blocked on the connection; from any thread."""
        if (connection := self._connection) is not None:
            connection.abort()

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> ServerConnection:
        if self._connection is None:
            self._connection = ServerConnection(self.address, self._peer)
        if self._stopping.is_set():
            raise Stopped("asked to end")
        return self._connection

    def _pause(self, error: Interrupted, give_up: float) -> None:
        if time.monotonic() > give_up:
            raise ServerLost(f"server {self.address.index} was away for {RECONNECT_S:g} s: {error}") from error
        log.info("server %d: %s; connecting again", self.address.index, error)
        if self._stopping.wait(PAUSE_S):
            raise Stopped("asked to end") from error


class Exchange:
    """Moves one worker's parameters and gradients to and from all servers; ``stopping`` ends every operation."""

    def __init__(self, peer: Peer, stopping: threading.Event) -> None:
        self._peer, self._stopping = peer, stopping
        self._servers: list[Server] = []
        self._pool: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self.placement_version = 0
        threading.Thread(target=self._watch, name="stop-watcher", daemon=True).start()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._leave()

    @property
    def blocks(self) -> set[int]:
        """Every block of the parameters."""
        return {block.index for server in self._servers for block in server.blocks}

    def adopt(self, placement: Placement) -> None:
        """Talk to the servers of ``placement`` from now on."""
        self._leave()
        held = {a.index: [block for block in placement.blocks if block.server == a.index] for a in placement.servers}
        holders = [address for address in placement.servers if held[address.index]]
        self._servers = [Server(address, held[address.index], self._peer, self._stopping) for address in holders]
        self._pool = ThreadPoolExecutor(max(1, len(holders)), thread_name_prefix="server")
        self.placement_version = placement.version

    def pull(self, parameters: Vector, version: int) -> Round:
        """Fill ``parameters`` with ``version``; ``stale`` if a server is past it.

        Raises:
            ServerLost: if a server stays away.
            Refused: if one will never do what it is asked.
            Stopped: if the process is asked to end meanwhile.
        """
        wanted = [_slices(parameters, server.blocks) for server in self._servers]
        return self._ask(lambda at: lambda c: c.pull(wanted[at], version=version, placement=self.placement_version))

    def push(self, gradient: Vector, pending: set[int], stamp: Header) -> Round:
        """Push those blocks of ``gradient`` that are ``pending``; those that count are removed from it.

        Raises:
            ServerLost, Refused, Stopped: as ``pull``.
        """
        due = [_slices(gradient, [b for b in server.blocks if b.index in pending]) for server in self._servers]
        stamp = replace(stamp, placement=self.placement_version, rank=self._peer.rank)
        outcome = self._ask(lambda at: lambda connection: connection.push(due[at], stamp))
        pending.intersection_update(index for left in due for index in left)
        return outcome

    def _ask(self, make: Callable[[int], Ask]) -> Round:
        """Ask all servers at once; what the last of them to answer had held back is what this worker was held for."""

        def ask(at: int) -> tuple[float, Outcome]:
            return self._servers[at].ask(make(at))

        everyone = range(len(self._servers))
        answers = list(self._pool.map(ask, everyone) if self._pool and len(everyone) > 1 else map(ask, everyone))
        _, last = max(answers, key=lambda answer: answer[0])
        stale, moved = any(o.stale for _, o in answers), any(o.moved for _, o in answers)
        return Round(held_s=last.held_s, stale=stale, moved=moved)

    def _watch(self) -> None:
        """When the process is to end, wake the threads that are blocked on a server."""
        while not self._closed.is_set():
            if self._stopping.wait(WATCH_S):
                for server in self._servers:
                    server.abort()
                return

    def _leave(self) -> None:
        for server in self._servers:
            server.close()
        if self._pool is not None:
            self._pool.shutdown()


def _slices(vector: Vector, blocks: Iterable[Block]) -> dict[int, memoryview]:
    """The memory of each block within ``vector``, as bytes."""
    return {block.index: vector[block.start : block.stop].data.cast("B") for block in blocks}
