"""What a process that holds its key may ask of a server: nothing that it sends ends the server, or stays in memory."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.security import data_plane
from benchmarks.security.data_plane import OwnServer
from controlplane.protocol import keys
from controlplane.protocol.orders import Block, Member, ServerAddress, ServerOrders
from controlplane.protocol.spec import Optimizer
from tests.support.waiting import eventually
from workers.server.listener import MOST_OF_ONE, Listener
from workers.server.meter import Meter
from workers.server.session import Session
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.client import ServerConnection
from workers.transport.errors import Interrupted
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer
from workers.workloads.rules import GradientRule

KEY = b"server 0"
SIZE = 50
WORKER, OTHER = Peer(0, "w"), Peer(1, "s", "server")


def key_of(peer: Peer) -> bytes:
    derive = keys.data_key if peer.role == "worker" else keys.peer_key
    return derive(KEY, peer.rank, peer.instance)


@dataclass
class Running:
    """A server with one block, a second that a worker is to fill, and a third that comes with the next placement."""

    failures: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store(
            lambda: np.zeros(3 * SIZE, dtype=np.float32),
            lambda values, _: GradientRule(values, Optimizer(lr=1.0)),
            elements=3 * SIZE,
        )
        self.orders = ServerOrders(
            incarnation=0,
            generation=1,
            sequence=1,
            members=[Member(rank=0, instance="w", from_iteration=0)],
            placement_version=1,
            next_placement=2,
            blocks=[Block(index=at, start=at * SIZE, stop=(at + 1) * SIZE, server=0) for at in range(2)],
            awaits=[1],
        )
        self.store.take(self.orders)
        self.listener = Listener("127.0.0.1", self.store, Meter(), key_of, self.failures.append)

    def connect(self, peer: Peer) -> ServerConnection:
        address = ServerAddress(index=0, instance="s0", host="127.0.0.1", port=self.listener.port, key=key_of(peer))
        return ServerConnection(address, peer)

    @property
    def own(self) -> OwnServer:
        return OwnServer(
            port=self.listener.port,
            worker=WORKER,
            worker_key=key_of(WORKER),
            server=OTHER,
            server_key=key_of(OTHER),
            block_bytes=4 * SIZE,
        )


@pytest.fixture
def server() -> Iterator[Running]:
    found = Running()
    yield found
    found.store.stop()
    found.listener.close()


@pytest.mark.parametrize(
    ("peer", "answers"),
    [(WORKER, [Op.COUNTED, Op.VALUES, Op.PROBED, Op.TAKEN]), (OTHER, [Op.TAKEN, Op.REFUSED])],
    ids=["worker", "server"],
)
def test_what_the_fuzzer_changes_is_what_the_server_answers(server: Running, peer: Peer, answers: list[Op]) -> None:
    found = []
    with closing(server.connect(peer)) as connection:
        for request in data_plane.requests(server.own, peer):
            for header, payload in request:
                connection._channel.send(header, payload)
            reply = connection._channel.receive()
            connection._channel.receive_bytes(reply)
            found.append(reply.op)
    assert found == answers


def test_no_request_ends_the_server(server: Running) -> None:
    sent = data_plane.fuzz_sessions(server.own, 7, 600, 1e6)
    assert (sent.frames, server.failures) == (600, [])
    with closing(server.connect(WORKER)) as connection:
        connection.probe(b"x" * 100)


def test_pushes_of_any_length_to_blocks_that_moved_keep_no_memory(server: Running) -> None:
    server.store.take(replace(server.orders, sequence=2, placement_version=2, next_placement=0, blocks=[], awaits=[]))
    near, far = socket.socketpair()
    session = Session(Channel(far), WORKER, server.store, Meter())
    with closing(far), closing(Channel(near)) as channel:
        thread = threading.Thread(target=lambda: suppressed(session.run))
        thread.start()
        for length in range(1, 40):
            channel.send(Header(op=Op.PUSH, generation=1, placement=1, rank=0, samples=1), bytes(length))
            assert channel.receive().op is Op.MOVED
        channel.abort()
        thread.join(30)
    assert session._buffers == {}


def test_no_more_blocks_are_kept_for_the_next_placement_than_the_job_has(server: Running) -> None:
    found = []
    for index in range(2, 7):
        with closing(server.connect(OTHER)) as connection:
            for header, payload in data_plane.requests(server.own, OTHER)[0]:
                connection._channel.send(replace(header, block=index), payload)
            found.append(connection._channel.receive().op)
    assert found == [Op.TAKEN] * 3 + [Op.REFUSED] * 2


def suppressed(act: Callable[[], object]) -> None:
    with suppress(Interrupted):
        act()


def sessions() -> int:
    return sum(thread.name == "session" for thread in threading.enumerate())


def test_a_connection_that_ended_while_it_waited_leaves_no_thread(server: Running) -> None:
    never = Header(op=Op.PULL, generation=1, placement=1, iteration=1_000_000, rank=0)
    for _ in range(3 * MOST_OF_ONE):
        with closing(server.connect(WORKER)) as connection:
            connection._channel.send(never)
    eventually(lambda: sessions() <= MOST_OF_ONE, what="few threads", seconds=10)
