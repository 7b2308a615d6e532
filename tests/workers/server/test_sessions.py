"""A server over real loopback sockets, with workers that behave and workers that do not."""

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from controlplane.protocol import keys
from controlplane.protocol.orders import Block, Member, ServerAddress, ServerOrders
from controlplane.protocol.spec import Optimizer
from tests.support.waiting import eventually
from tests.workers.identities import calling, serving
from workers.server.listener import Listener
from workers.server.meter import Meter
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.client import Outcome, ServerConnection
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.errors import ConnectionClosed, Refused, Unauthorised
from workers.transport.frames import MAX_PAYLOAD_BYTES, Header, Op, encode_header
from workers.transport.handshake import Peer, greet_server
from workers.workloads.rules import GradientRule

SERVER_KEY = b"server 0"
SIZE = 1000
BLOCKS = 20


@dataclass
class Running:
    """A server with 20 blocks of 1,000 zeros; a mean gradient of -1 adds 1."""

    store: Store
    meter: Meter
    listener: Listener
    encrypted: bool
    sequence: int = 0

    def encryption(self, peer: Peer) -> Encryption:
        return calling(peer.rank, peer.instance) if self.encrypted else PLAIN

    def appoint(self, *members: Peer, generation: int = 1, placement: int = 1, blocks: int = BLOCKS) -> None:
        self.sequence += 1
        self.store.take(
            ServerOrders(
                incarnation=0,
                generation=generation,
                sequence=self.sequence,
                members=[Member(rank=m.rank, instance=m.instance, from_iteration=0) for m in members],
                placement_version=placement,
                blocks=[Block(index=at, start=at * SIZE, stop=(at + 1) * SIZE, server=0) for at in range(blocks)],
            )
        )

    def connect(self, peer: Peer, *, key: bytes | None = None, checked: bool = False) -> ServerConnection:
        key = key or keys.data_key(SERVER_KEY, peer.rank, peer.instance)
        address = ServerAddress(index=0, instance="s0", host="127.0.0.1", port=self.listener.port, key=key)
        return ServerConnection(address, peer, checked=checked, encryption=self.encryption(peer))

    def raw(self, peer: Peer) -> tuple[socket.socket, Channel]:
        """An authenticated connection with which a test may do as it likes."""
        channel = Channel(socket.create_connection(("127.0.0.1", self.listener.port)))
        address = ServerAddress(index=0, instance="s0", host="127.0.0.1", port=self.listener.port, key=b"")
        encryption = self.encryption(peer)
        greet_server(
            channel,
            keys.data_key(SERVER_KEY, peer.rank, peer.instance),
            peer,
            lambda encrypts: encryption.meet(channel, address, encrypts=encrypts),
        )
        return channel._socket, channel

    @property
    def values(self) -> list[float]:
        """The first value of each block."""
        firsts = []
        for index in range(BLOCKS):
            block = self.store.find(index, 1)
            assert block is not None
            snapshot, _, _ = block.borrow(0)
            block.give_back(snapshot)
            firsts.append(float(snapshot.values[0]))
        return firsts


A, B = Peer(0, "a"), Peer(1, "b")


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def server(request: pytest.FixtureRequest) -> Iterator[Running]:
    meter = Meter()
    store = Store(
        lambda: np.zeros(SIZE * BLOCKS, dtype=np.float32), lambda values, _: GradientRule(values, Optimizer(lr=1.0))
    )
    failures: list[Exception] = []
    listener = Listener(
        "127.0.0.1",
        store,
        meter,
        lambda peer: keys.data_key(SERVER_KEY, peer.rank, peer.instance),
        failures.append,
        encryption=serving() if request.param else PLAIN,
    )
    yield Running(store, meter, listener, encrypted=request.param)
    store.stop()
    listener.close()
    assert failures == []


def gradient(value: float, size: int = SIZE) -> memoryview:
    return np.full(size, value, dtype=np.float32).data.cast("B")


def everything(value: float) -> dict[int, memoryview]:
    return {index: gradient(value) for index in range(BLOCKS)}


def stamp(peer: Peer, *, iteration: int = 0, generation: int = 1, samples: int = 1) -> Header:
    return Header(op=Op.PUSH, generation=generation, placement=1, iteration=iteration, rank=peer.rank, samples=samples)


def push_header(peer: Peer, **changes: int) -> Header:
    fields = {"generation": 1, "placement": 1, "rank": peer.rank, "samples": 1, "length": 4 * SIZE} | changes
    return Header(op=Op.PUSH, **fields)  # type: ignore[arg-type]


def pull(connection: ServerConnection, version: int) -> tuple[list[float], Outcome]:
    into = {index: np.full(SIZE, -1.0, dtype=np.float32) for index in range(BLOCKS)}
    stamp = Header(op=Op.PULL, iteration=version, placement=1)
    outcome = connection.pull({i: array.data.cast("B") for i, array in into.items()}, stamp)
    return [float(array[-1]) for array in into.values()], outcome


@pytest.mark.parametrize("checked", [False, True])
def test_what_two_workers_push_is_what_both_pull(server: Running, checked: bool) -> None:
    server.appoint(A, B)
    connections = {peer: server.connect(peer, checked=checked) for peer in (A, B)}
    for iteration in range(3):
        for peer, connection in connections.items():
            pending = everything(-1.0 if peer is A else -5.0)
            assert connection.push(pending, stamp(peer, iteration=iteration)) == Outcome()
            assert pending == {}
    for connection in connections.values():
        assert pull(connection, 3) == ([9.0] * BLOCKS, Outcome())
        connection.close()
    reading = server.meter.take()
    assert (reading.bytes_in, reading.bytes_out) == (6 * BLOCKS * SIZE * 4, 2 * BLOCKS * SIZE * 4)


def test_a_wrong_key_opens_nothing_and_harms_no_one(server: Running) -> None:
    server.appoint(A)
    with pytest.raises(Unauthorised):
        server.connect(A, key=b"guessed")
    connection = server.connect(A)
    assert pull(connection, 0) == ([0.0] * BLOCKS, Outcome())
    connection.close()


def test_a_worker_that_dies_in_mid_push_leaves_no_one_hanging(server: Running) -> None:
    server.appoint(A, B)
    alive = server.connect(A)
    dying, _ = server.raw(B)
    for block in range(3):
        dying.sendall(encode_header(push_header(B, block=block)) + bytes(4 * SIZE))
    dying.sendall(encode_header(push_header(B, block=3)) + bytes(SIZE))
    dying.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    alive.push(everything(-2.0), stamp(A))
    pulled: list[tuple[list[float], Outcome]] = []
    waiting = threading.Thread(target=lambda: pulled.append(pull(alive, 1)))
    waiting.start()
    eventually(lambda: server.values[:3] == [1.0, 1.0, 1.0], what="the blocks that both have pushed")
    dying.close()
    server.appoint(A, generation=2)
    waiting.join(10.0)
    assert [values for values, _ in pulled] == [[1.0] * 3 + [2.0] * (BLOCKS - 3)]
    assert server.store.take_missing() == [(0, 1)]
    alive.close()


def test_after_a_lost_acknowledgement_the_same_push_counts_once(server: Running) -> None:
    server.appoint(A, B)
    losing, _ = server.raw(A)
    losing.sendall(encode_header(push_header(A)) + bytes(gradient(-4.0)))
    losing.close()
    other = server.connect(B)
    other.push({0: gradient(0.0)}, stamp(B))
    eventually(lambda: server.values[0] == 2.0, what="the block that both have pushed")
    again = server.connect(A)
    pending = {0: gradient(-4.0), 1: gradient(-4.0)}
    again.push(pending, stamp(A))
    other.push({1: gradient(0.0)}, stamp(B))
    assert (pending, server.values[:2]) == ({}, [2.0, 2.0])
    again.close()
    other.close()


def test_a_header_altered_on_the_way_costs_the_connection_and_no_more(server: Running) -> None:
    server.appoint(A)
    raw, channel = server.raw(A)
    frame = bytearray(encode_header(push_header(A)))
    frame[20] ^= 4
    raw.sendall(frame + bytes(4 * SIZE))
    with pytest.raises(ConnectionClosed):
        channel.receive()
    channel.close()
    connection = server.connect(A)
    connection.push(everything(-1.0), stamp(A))
    assert server.values == [1.0] * BLOCKS
    connection.close()


def test_a_payload_altered_on_the_way_does_not_count(server: Running) -> None:
    server.appoint(A)
    raw, channel = server.raw(A)
    header = Header(op=Op.PUSH, checked=True, generation=1, placement=1, samples=1, length=4 * SIZE, payload_checksum=1)
    raw.sendall(encode_header(header) + bytes(4 * SIZE))
    with pytest.raises(ConnectionClosed):
        channel.receive()
    channel.close()
    assert server.store.version == 0


def test_a_payload_larger_than_any_block_costs_the_connection(server: Running) -> None:
    server.appoint(A)
    raw, channel = server.raw(A)
    raw.sendall(encode_header(push_header(A, length=MAX_PAYLOAD_BYTES + 1)))
    with pytest.raises(ConnectionClosed):
        channel.receive()
    channel.close()


def test_a_push_that_is_not_the_size_of_its_block_is_refused_with_both(server: Running) -> None:
    server.appoint(A)
    connection = server.connect(A)
    too_long = {index: gradient(1.0, 500_000) for index in range(BLOCKS)}
    with pytest.raises(Refused, match="push of block 0 has 2000000 bytes, the block 4000"):
        connection.push(too_long, stamp(A))
    connection.close()


def test_a_request_in_the_name_of_another_is_refused(server: Running) -> None:
    server.appoint(A, B)
    connection = server.connect(A)
    with pytest.raises(Refused, match="in the name of rank 1 on the connection of rank 0"):
        connection.push({0: gradient(1.0)}, stamp(B))
    connection.close()


def test_only_pushes_and_pulls_are_requests(server: Running) -> None:
    server.appoint(A)
    _, channel = server.raw(A)
    channel.send(Header(op=Op.WELCOME))
    answer = channel.receive()
    assert (answer.op, channel.receive_bytes(answer)) == (
        Op.REFUSED,
        b"WELCOME with 0 bytes is not a request; PUSH, PULL, PROBE and FILL are",
    )
    channel.close()


def test_an_earlier_generation_is_answered_with_refresh_and_keeps_its_updates(server: Running) -> None:
    server.appoint(A, generation=2)
    connection = server.connect(A)
    pending = everything(-3.0)
    assert connection.push(pending, stamp(A, generation=1)) == Outcome(stale=True)
    assert (len(pending), server.store.version) == (BLOCKS, 0)
    assert connection.push(pending, stamp(A, generation=2)) == Outcome()
    assert (pending, server.values) == ({}, [3.0] * BLOCKS)
    connection.close()


def test_a_later_generation_is_held_until_the_server_has_it(server: Running) -> None:
    server.appoint(A)
    connection = server.connect(A)
    pending = everything(-3.0)
    outcomes: list[Outcome] = []
    pushing = threading.Thread(target=lambda: outcomes.append(connection.push(pending, stamp(A, generation=2))))
    pushing.start()
    eventually(lambda: server.meter.take().bytes_in, what="the push")
    server.appoint(A, generation=2)
    pushing.join(10.0)
    assert (pending, server.values, outcomes[0].held_s > 0.0) == ({}, [3.0] * BLOCKS, True)
    connection.close()


def test_a_request_for_a_moved_block_is_answered_with_refresh(server: Running) -> None:
    server.appoint(A)
    server.appoint(A, placement=2, blocks=BLOCKS - 1)
    connection = server.connect(A)
    pending = everything(-1.0)
    assert connection.push(pending, stamp(A)) == Outcome(moved=True)
    assert list(pending) == [BLOCKS - 1]
    _, outcome = pull(connection, 0)
    assert outcome == Outcome(moved=True, stale=True)
    connection.close()


def test_a_version_that_is_past_tells_the_worker_that_it_was_passed_over(server: Running) -> None:
    server.appoint(A)
    connection = server.connect(A)
    connection.push(everything(-1.0), stamp(A))
    assert pull(connection, 0) == ([1.0] * BLOCKS, Outcome(stale=True))
    connection.close()


def test_the_servers_end_wakes_waiting_clients(server: Running) -> None:
    server.appoint(A, B)
    connection = server.connect(A)
    ends: list[Exception] = []

    def wait() -> None:
        try:
            pull(connection, 1)
        except ConnectionClosed as end:
            ends.append(end)

    waiting = threading.Thread(target=wait)
    waiting.start()
    server.store.stop()
    server.listener.close()
    waiting.join(10.0)
    assert len(ends) == 1
    connection.close()
    with pytest.raises(ConnectionClosed, match=r"server 0 at 127\.0\.0\.1:.* cannot be reached"):
        server.connect(A)


def test_a_probe_comes_back_as_long_and_touches_nothing(server: Running) -> None:
    connection = server.connect(A)
    connection.probe(bytes(100_000))
    connection.close()
    server.appoint(A)
    assert server.values == [0.0] * BLOCKS
