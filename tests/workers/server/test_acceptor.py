"""The data plane under attack: connections that say nothing, drip, or say nonsense, more than the limit."""

import multiprocessing
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from controlplane.protocol import keys
from controlplane.protocol.messages import ServerHello
from controlplane.protocol.orders import Block, Member, ServerAddress, ServerOrders
from controlplane.protocol.spec import Optimizer
from tests.support.waiting import eventually
from tests.workers.driver import Cluster, job_spec
from workers.server import acceptor
from workers.server.acceptor import Acceptor
from workers.server.listener import MOST_OF_ONE, Listener
from workers.server.meter import Meter
from workers.server.store import Store
from workers.transport.client import ServerConnection
from workers.transport.errors import TransportError
from workers.transport.frames import HEADER_BYTES, Header, Op
from workers.transport.handshake import NONCE_BYTES, Peer
from workers.workloads.rules import GradientRule

SERVER_KEY = b"server 0"
MAX_PENDING = 8
PEER = Peer(0, "w0")


def key_of(peer: Peer) -> bytes:
    return keys.data_key(SERVER_KEY, peer.rank, peer.instance)


class Hall:
    """An acceptor, and the peers that it admitted."""

    def __init__(self, max_pending: int) -> None:
        self.admitted: list[tuple[Peer, str]] = []
        self.acceptor = Acceptor("127.0.0.1", key_of, self.admit, max_pending=max_pending)

    def admit(self, connected: socket.socket, peer: Peer) -> None:
        self.admitted.append((peer, threading.current_thread().name))
        connected.close()

    def call(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.acceptor.port), timeout=30.0)

    def connect(self, peer: Peer = PEER) -> ServerConnection:
        return connect(self.acceptor.port, peer)


def connect(port: int, peer: Peer = PEER) -> ServerConnection:
    address = ServerAddress(index=0, instance="s0", host="127.0.0.1", port=port, key=key_of(peer))
    return ServerConnection(address, peer)


@pytest.fixture
def hall() -> Iterator[Hall]:
    found = Hall(MAX_PENDING)
    yield found
    found.acceptor.close()


def is_ended(called: socket.socket) -> bool:
    """Whether the server has ended it, after its challenge."""
    called.settimeout(30.0)
    left = HEADER_BYTES + NONCE_BYTES
    try:
        while left and (data := called.recv(left)):
            left -= len(data)
        return called.recv(1) == b""
    except ConnectionResetError:
        return True


def test_of_more_connections_than_the_limit_the_oldest_are_evicted(hall: Hall) -> None:
    with ExitStack() as held:
        silent = [held.enter_context(hall.call()) for _ in range(MAX_PENDING + 4)]
        assert all(is_ended(called) for called in silent[:4])
        hall.connect().close()
        eventually(lambda: hall.admitted == [(PEER, "acceptor")], what="the peer's admission, on the acceptor's thread")


def test_a_hundred_connections_that_send_nothing_need_no_thread(hall: Hall) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(hall.call())
        assert threading.active_count() <= before


def test_bytes_that_drip_in_do_not_extend_the_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_S", 0.3)
    hall, over = Hall(MAX_PENDING), threading.Event()
    with closing(hall.acceptor), closing(hall.call()) as called:

        def drip() -> None:
            while not over.wait(0.05):
                try:
                    called.send(b"P")
                except OSError:
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert is_ended(called)
        over.set()
        dripping.join(10.0)


def test_silence_ends_within_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_S", 0.1)
    hall = Hall(MAX_PENDING)
    with closing(hall.acceptor), closing(hall.call()) as called:
        assert is_ended(called)


def test_nonsense_ends_at_once_and_harms_no_one(hall: Hall) -> None:
    with closing(hall.call()) as called:
        called.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nUser-Agent: browser\r\n\r\n")
        assert is_ended(called)
    hall.connect().close()
    eventually(lambda: hall.admitted == [(PEER, "acceptor")], what="the peer's admission, on the acceptor's thread")


def test_one_address_does_not_put_out_those_of_another() -> None:
    hall = Hall(MAX_PENDING)
    with closing(hall.acceptor), ExitStack() as held:
        other = socket.create_connection(
            ("127.0.0.1", hall.acceptor.port), timeout=30.0, source_address=("127.0.0.2", 0)
        )
        held.enter_context(other)
        for _ in range(3 * MAX_PENDING):
            held.enter_context(hall.call())
        other.recv(HEADER_BYTES + NONCE_BYTES, socket.MSG_WAITALL)
        other.settimeout(0.05)
        with pytest.raises(TimeoutError):
            other.recv(1)


def test_what_cannot_be_served_does_not_stop_the_acceptor() -> None:
    served: list[Peer] = []

    def admit(connected: socket.socket, peer: Peer) -> None:
        connected.close()
        served.append(peer)
        if len(served) == 1:
            raise RuntimeError("can't start new thread")

    found = Acceptor("127.0.0.1", key_of, admit, max_pending=MAX_PENDING)
    with closing(found):
        for peer in (PEER, Peer(1, "w1")):
            connect(found.port, peer).close()
        eventually(lambda: served == [PEER, Peer(1, "w1")], what="both peers")


@contextmanager
def pestered(port: int, count: int) -> Iterator[None]:
    """Many connections that are held open: some silent, some half through a hello; renewed as they are ended."""
    over, full = threading.Event(), threading.Event()

    def pester() -> None:
        held: list[socket.socket] = []
        while not over.wait(0.001):
            try:
                called = socket.create_connection(("127.0.0.1", port), timeout=1.0)
            except OSError:
                continue
            if len(held) % 2:
                called.sendall(b"PACE")
            held.append(called)
            if len(held) > count:
                full.set()
                held.pop(0).close()
        for called in held:
            called.close()

    pestering = threading.Thread(target=pester, daemon=True)
    pestering.start()
    assert full.wait(30.0)
    try:
        yield
    finally:
        over.set()
        pestering.join(30.0)


def test_workers_shake_hands_and_train_while_strangers_fill_the_limit() -> None:
    with Cluster(job_spec(workers=2), [(16, 16)] * 20) as cluster:
        port = cluster.servers[0].link.await_said(ServerHello)[0].port
        with pestered(port, 2 * acceptor.MAX_PENDING):
            cluster.run()
        assert len(cluster.finished()) == 2


def test_connections_of_one_worker_are_bounded() -> None:
    with _listening() as (listener, _), ExitStack() as held:
        connections = [connect(listener.port) for _ in range(MOST_OF_ONE + 3)]
        for connection in connections:
            held.callback(connection.close)
        for connection in connections[3:]:
            connection.probe(bytes(1000))
        # Those that answer are in, so the oldest are out by now.
        for connection in connections[:3]:
            with pytest.raises(TransportError):
                connection.probe(bytes(1000))


@contextmanager
def _listening(max_pending: int | None = None) -> Iterator[tuple[Listener, Store]]:
    store = Store(lambda: np.zeros(8, dtype=np.float32), lambda values, _: GradientRule(values, Optimizer(lr=1.0)))
    failures: list[Exception] = []
    listener = Listener("127.0.0.1", store, Meter(), key_of, failures.append, max_pending=max_pending)
    yield listener, store
    store.stop()
    listener.close()
    assert failures == []


LIMIT = 64


def _serve_with_few_descriptors(said: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    with _listening() as (listener, store):
        store.take(
            ServerOrders(
                incarnation=0,
                generation=1,
                sequence=1,
                members=[Member(rank=0, instance="w0", from_iteration=0)],
                placement_version=1,
                blocks=[Block(index=0, start=0, stop=8, server=0)],
            )
        )
        said.send(listener.port)
        while said.recv() == "beat":
            said.send(Path("/proc/self/stat").read_text() != "")


def test_a_server_with_few_descriptors_continues_beside_many_more_connections() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_with_few_descriptors, args=(theirs,), daemon=True)
    process.start()
    try:
        assert ours.poll(120.0)
        port = ours.recv()
        connection = connect(port)
        with pestered(port, 4 * LIMIT), ExitStack() as held:
            for _ in range(3 * LIMIT):
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30.0))
            for iteration in range(20):
                ours.send("beat")
                assert ours.poll(30.0)
                assert ours.recv() is True
                stamp = Header(op=Op.PUSH, generation=1, placement=1, iteration=iteration, samples=1)
                pending = {0: np.full(8, -1.0, dtype=np.float32).data.cast("B")}
                assert not connection.push(pending, stamp).stale
            newcomer = eventually(lambda: _comes_in(port), what="another connection of the worker", seconds=30.0)
            newcomer.close()
        connection.close()
        ours.send("end")
        process.join(30.0)
        assert process.exitcode == 0
    finally:
        process.kill()


def _comes_in(port: int) -> ServerConnection | None:
    """As a worker does: what was put out before it had proved itself tries again."""
    try:
        return connect(port)
    except TransportError:
        return None
