"""Pulls and pushes all blocks of a worker, in parallel over the servers that hold them.

A broken connection is reopened, and only requests without a reply are repeated. Servers count a contribution once, so a
lost reply does no harm.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import torch
from msgspec.structs import replace

from controlplane.protocol.emulation import LinkEmulation
from controlplane.protocol.orders import Block, Placement, ServerAddress
from workers.trainer.copies import Copies
from workers.trainer.ledger import Ledger
from workers.trainer.round import Round
from workers.transport.client import Outcome, ServerConnection, unobserved
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.errors import ConnectionClosed, Interrupted, ServerLost, Stopped, TransportError
from workers.transport.frames import MAX_PAYLOAD_BYTES, Header
from workers.transport.handshake import Peer
from workers.transport.throttled import through
from workers.workloads.shape import Vector

log = logging.getLogger(__name__)

RECONNECT_S = 30.0
"""How long a server may be unreachable before the worker gives up. Its agent reports a lost server much sooner, and the
control plane forwards it; while that is unreachable too, the worker keeps waiting.
"""
PAUSE_S = 0.1
WATCH_S = 0.2

Ask = Callable[[ServerConnection], Outcome]
Connect = Callable[[ServerAddress], ServerConnection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The result of a request to one server: when, how long and the outcome."""

    at: float
    took_s: float
    outcome: Outcome

    @property
    def seconds(self) -> float:
        """Duration of the transfer itself, without the time for which the server waited for others."""
        return max(0.0, self.took_s - self.outcome.held_s)


class Server:
    """One server and the connection to it, if there is one."""

    def __init__(
        self,
        address: ServerAddress,
        connect: Connect,
        stopping: threading.Event,
        is_replaced: Callable[[ServerAddress], bool] = lambda address: False,
        in_reach: Callable[[], bool] = lambda: True,
    ) -> None:
        self.address = address
        self.blocks: list[Block] = []
        self.is_forsaken = False
        self._connect, self._stopping, self._is_replaced, self._in_reach = connect, stopping, is_replaced, in_reach
        self._connection: ServerConnection | None = None

    @property
    def sizes(self) -> dict[int, int]:
        """Bytes of each of its blocks."""
        return {block.index: block.bytes for block in self.blocks}

    def ask(self, ask: Ask) -> Answered:
        """Run ``ask`` on a connection, on a new one whenever it breaks; return its outcome.

        If a placement without this server has arrived, its blocks have moved.

        Raises:
            ServerLost: if the server stays unreachable, and the connected control plane does not report it lost.
            Stopped: if the process is asked to end meanwhile.
        """
        away_since = time.monotonic()
        while not self._is_replaced(self.address):
            try:
                connection = self._connected()
                began = time.monotonic()
                outcome = ask(connection)
                ended = time.monotonic()
                return Answered(at=ended, took_s=ended - began, outcome=outcome)
            except Interrupted as error:
                self.close()
                now = time.monotonic()
                if self.is_forsaken or not self._in_reach():
                    away_since = now
                elif now - away_since > RECONNECT_S:
                    raise self._lost(error) from error
                self._pause(error)
        return Answered(at=time.monotonic(), took_s=0.0, outcome=Outcome(moved=True))

    def forsake(self) -> None:
        """The server was lost: stop connecting, and wait for the next placement; from any thread."""
        self.is_forsaken = True
        self.abort()

    def abort(self) -> None:
        """Wake the thread that is blocked on the connection; from any thread."""
        if (connection := self._connection) is not None:
            connection.abort()

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> ServerConnection:
        if self.is_forsaken:
            raise ConnectionClosed("it was lost")
        if self._connection is None:
            self._connection = self._connect(self.address)
        if self._stopping.is_set():
            raise Stopped("asked to end")
        return self._connection

    def _lost(self, error: Interrupted) -> ServerLost:
        return ServerLost(f"server {self.address.index} was away for {RECONNECT_S:g} s: {error}")

    def _pause(self, error: Interrupted) -> None:
        if not self.is_forsaken:
            log.info("server %d: %s; connecting again", self.address.index, error)
        if self._stopping.wait(PAUSE_S):
            raise Stopped("asked to end") from error


class Exchange:
    """Transfers one worker's parameters and gradients from and to all servers; ``stopping`` ends every operation.

    Args:
        newest: returns the newest placement, adopted or not.
        in_reach: whether the control plane is connected.
        copies: records what was pulled, in case a server is lost.
        encryption: of connections to servers.
        link: this worker's emulated link, if there is one.
    """

    may_stop = True
    """A worker may stop before any iteration: its pushed updates still count."""
    address = ("", 0)
    """None: other workers need not reach this one."""

    def __init__(
        self,
        peer: Peer,
        stopping: threading.Event,
        newest: Callable[[], Placement | None] = lambda: None,
        copies: Copies | None = None,
        in_reach: Callable[[], bool] = lambda: True,
        encryption: Encryption = PLAIN,
        link: LinkEmulation | None = None,
    ) -> None:
        self._peer, self._stopping, self._newest, self._in_reach = peer, stopping, newest, in_reach
        channel = through(link, stopping.wait)
        self.connect: Connect = partial(ServerConnection, peer=peer, encryption=encryption, open_channel=channel)
        """A connection to a server, for one thread."""
        self.copies = copies
        self._refills: Mapping[int, int] = {}
        self._forsaken: dict[int, int] = {}
        self._lock = threading.Lock()
        self._servers: list[Server] = []
        self._pool: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self.placement_version = 0
        self.ledger = Ledger()
        self._addresses: dict[int, ServerAddress] = {}
        self._probed = 0
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

    def adopt(self, placement: Placement) -> set[int]:
        """Use the servers of ``placement`` from now on; connections to those that stay are kept.

        Returns blocks that were restored, and may lack this worker's last push.
        """
        known = {server.address: server for server in self._servers}
        self._addresses = {address.index: address for address in placement.servers}
        held = {a.index: [block for block in placement.blocks if block.server == a.index] for a in placement.servers}
        holders = [address for address in placement.servers if held[address.index]]
        self._servers = [known.pop(address) if address in known else self._server(address) for address in holders]
        for server in self._servers:
            server.blocks = held[server.address.index]
        for server in known.values():
            server.close()
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = ThreadPoolExecutor(max(1, len(holders)), thread_name_prefix="server")
        self.placement_version = placement.version
        before, self._refills = self._refills, placement.refills
        self._trust()
        begun = {block for block, times in placement.refills.items() if times > before.get(block, 0)}
        return begun if placement.again else set()

    def _server(self, address: ServerAddress) -> Server:
        return Server(address, self.connect, self._stopping, self._is_replaced, self._in_reach)

    def forsake(self, blocks: Iterable[int]) -> None:
        """The servers of these blocks were lost: receive nothing from them any more; from any thread."""
        lost = set(blocks)
        if self.copies is not None:
            self.copies.distrust(lost)
        with self._lock:
            self._forsaken |= {block: self._refills.get(block, 0) for block in lost}
            for server in self._servers:
                if any(block.index in lost for block in server.blocks):
                    server.forsake()

    def _trust(self) -> None:
        """Blocks that were restored after their server was lost are on another one now."""
        with self._lock:
            found = {block for block, times in self._forsaken.items() if self._refills.get(block, 0) > times}
            self._forsaken = {block: times for block, times in self._forsaken.items() if block not in found}
            for server in self._servers:
                server.is_forsaken = any(block.index in self._forsaken for block in server.blocks)
        if self.copies is not None:
            self.copies.trust(found)

    def pull(self, parameters: torch.Tensor, stamp: Header) -> Round:
        """Fill ``parameters`` with the version of ``stamp``; ``stale`` if a server is past it.

        Raises:
            ServerLost: if a server stays unreachable.
            Refused: if a server refuses the request permanently.
            Stopped: if the process is requested to end meanwhile.
        """
        vector: Vector = parameters.numpy()
        wanted = [_slices(vector, server.blocks) for server in self._servers]
        sizes, stamp = [_bytes_of(left) for left in wanted], self._signed(stamp)
        receiving = self.copies.receiving if self.copies is not None else unobserved
        answers = self._ask(lambda at: lambda connection: connection.pull(wanted[at], stamp, receiving))
        for server, left, size, answer in zip(self._servers, wanted, sizes, answers, strict=True):
            self.ledger.pulled(server.address.index, size - _bytes_of(left), answer.seconds)
            took_s = {block: seconds for block, seconds in answer.outcome.took_s.items() if block not in left}
            self.ledger.saw_blocks(server.address.index, server.sizes, pulled=took_s)
        self._note_moves(answers)
        return _round(answers)

    def push(self, gradient: torch.Tensor, pending: set[int], stamp: Header) -> Round:
        """Push the blocks of ``gradient`` that are ``pending``; those that were counted are removed from it.

        Raises:
            ServerLost, Refused, Stopped: as ``pull``.
        """
        vector: Vector = gradient.numpy()
        due = [_slices(vector, [b for b in server.blocks if b.index in pending]) for server in self._servers]
        sizes, stamp = [_bytes_of(left) for left in due], self._signed(stamp)
        answers = self._ask(lambda at: lambda connection: connection.push(due[at], stamp))
        for server, left, size, answer in zip(self._servers, due, sizes, answers, strict=True):
            self.ledger.pushed(server.address.index, size - _bytes_of(left), answer.seconds)
            took_s = {block: seconds for block, seconds in answer.outcome.took_s.items() if block not in left}
            self.ledger.saw_blocks(server.address.index, server.sizes, pushed=took_s)
        self._note_moves(answers)
        pending.intersection_update(index for left in due for index in left)
        return _round(answers)

    def probe(self, sizes: Mapping[int, int], number: int) -> None:
        """Time small extra transfers to servers, once per ``number``; unreachable ones are skipped."""
        if number <= self._probed:
            return
        self._probed = number
        for server, size in sizes.items():
            if (address := self._addresses.get(server)) is not None:
                threading.Thread(target=self._probe, args=(address, size), name="probe", daemon=True).start()

    def _probe(self, address: ServerAddress, size: int) -> None:
        payload = bytes(min(size, MAX_PAYLOAD_BYTES))
        try:
            connection = self.connect(address)
            try:
                began = time.monotonic()
                connection.probe(payload)
                self.ledger.probed(address.index, len(payload), time.monotonic() - began)
            finally:
                connection.close()
        except TransportError as error:
            log.info("server %d could not be timed: %s", address.index, error)

    def _ask(self, make: Callable[[int], Ask]) -> list[Answered]:
        """Send requests to all servers at once."""

        def ask(at: int) -> Answered:
            return self._servers[at].ask(make(at))

        everyone = range(len(self._servers))
        return list(self._pool.map(ask, everyone) if self._pool and len(everyone) > 1 else map(ask, everyone))

    def _note_moves(self, answers: list[Answered]) -> None:
        """Servers delay replies in parallel: the longest delay is the cost."""
        self.ledger.held_by_move(max(answer.outcome.moved_s for answer in answers))

    def _signed(self, stamp: Header) -> Header:
        return replace(stamp, placement=self.placement_version, rank=self._peer.rank)

    def _is_replaced(self, address: ServerAddress) -> bool:
        newest = self._newest()
        return newest is not None and newest.version > self.placement_version and address not in newest.servers

    def _watch(self) -> None:
        """When the process should end, wake the threads that are blocked on a server."""
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


def _bytes_of(slices: dict[int, memoryview]) -> int:
    return sum(len(memory) for memory in slices.values())


def _round(answers: list[Answered]) -> Round:
    """The delay of the last server that replied is this worker's."""
    last = max(answers, key=lambda answer: answer.at).outcome
    return Round(
        held_s=last.held_s,
        stale=any(answer.outcome.stale for answer in answers),
        late=any(answer.outcome.late for answer in answers),
        moved=any(answer.outcome.moved for answer in answers),
    )
