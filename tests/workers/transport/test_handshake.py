import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from controlplane.protocol import keys
from tests.workers.transport.test_channel import connected
from workers.transport import handshake
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, ConnectionClosed, TransportError, Unauthorised
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer, greet_server, greet_worker

SERVER_KEY = b"server 0"
PEER = Peer(rank=2, instance="w2-first")
KEY = keys.data_key(SERVER_KEY, PEER.rank, PEER.instance)


def key_of(peer: Peer) -> bytes:
    return keys.data_key(SERVER_KEY, peer.rank, peer.instance)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """The worker's and the server's channel of one connection."""
    near, far = connected()
    worker, server = Channel(near), Channel(far)
    yield worker, server
    worker.close()
    server.close()


def together(server_side: Callable[[], object], worker_side: Callable[[], object]) -> list[object]:
    """What came of both sides, run at the same time: the server's result or error, then the worker's."""
    results: list[object] = [None, None]

    def run(at: int, side: Callable[[], object]) -> None:
        try:
            results[at] = side()
        except TransportError as error:
            results[at] = error

    thread = threading.Thread(target=run, args=(0, server_side))
    thread.start()
    run(1, worker_side)
    thread.join(10.0)
    return results


def test_both_ends_know_each_other_afterwards(ends: tuple[Channel, Channel]) -> None:
    worker, server = ends
    assert together(lambda: greet_worker(server, key_of), lambda: greet_server(worker, KEY, PEER)) == [PEER, None]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        pytest.param(b"guessed", PEER, id="a guessed key"),
        pytest.param(KEY, Peer(3, PEER.instance), id="the key of another rank"),
        pytest.param(KEY, Peer(PEER.rank, "w2-second"), id="the key of an earlier life"),
        pytest.param(keys.data_key(b"server 1", 2, "w2-first"), PEER, id="the key for another server"),
    ],
)
def test_a_worker_without_the_right_key_is_told_so(ends: tuple[Channel, Channel], key: bytes, says: Peer) -> None:
    worker, server = ends
    at_server, at_worker = together(lambda: greet_worker(server, key_of), lambda: greet_server(worker, key, says))
    assert isinstance(at_server, Unauthorised)
    assert isinstance(at_worker, Unauthorised)
    assert str(at_server) == f"worker {says.rank} ({says.instance}) does not hold its key"
    assert "the credential does not fit this worker and this server" in str(at_worker)


def test_a_server_without_the_key_is_found_out(ends: tuple[Channel, Channel]) -> None:
    worker, server = ends

    def impostor() -> None:
        server.send(Header(op=Op.CHALLENGE), bytes(32))
        hello = server.receive_bytes(server.receive())
        server.send(Header(op=Op.WELCOME), hello[32:64])  # the worker's own proof, sent back to it

    _, at_worker = together(impostor, lambda: greet_server(worker, KEY, PEER))
    assert isinstance(at_worker, Unauthorised)
    assert str(at_worker) == "worker 2: the server does not hold the key that it should share with it"


def test_an_old_proof_is_worth_nothing_under_a_new_challenge(ends: tuple[Channel, Channel]) -> None:
    worker, server = ends
    recorded = bytes(32) + keys.proof(KEY, b"worker" + bytes(32) + bytes(32)) + PEER.instance.encode()

    def replay() -> None:
        worker.receive_bytes(worker.receive())
        worker.send(Header(op=Op.HELLO, rank=PEER.rank), recorded)

    at_server, _ = together(lambda: greet_worker(server, key_of), replay)
    assert isinstance(at_server, Unauthorised)


def test_a_request_before_the_handshake_is_no_handshake(ends: tuple[Channel, Channel]) -> None:
    worker, server = ends
    worker.send(Header(op=Op.PULL))
    with pytest.raises(BadHeader, match="expected HELLO or PEER_HELLO in the handshake, found PULL"):
        greet_worker(server, key_of)


def test_nobody_may_announce_megabytes_before_the_handshake(ends: tuple[Channel, Channel]) -> None:
    worker, server = ends
    worker.send(Header(op=Op.HELLO), bytes(513))
    with pytest.raises(BadHeader, match="payload of 513 bytes announced, at most 512"):
        greet_worker(server, key_of)


def test_silence_ends_the_handshake(ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.01)
    _, server = ends
    with pytest.raises(ConnectionClosed, match="timed out"):
        greet_worker(server, key_of)


def test_a_browser_is_not_mistaken_for_a_worker() -> None:
    near, far = connected()
    server = Channel(far)
    near.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nUser-Agent: browser\r\n\r\n")
    with pytest.raises(BadHeader, match="frame begins with b'GET ' version 47, expected b'PACE' version 1"):
        greet_worker(server, key_of)
    near.shutdown(socket.SHUT_RDWR)
    near.close()
    server.close()
