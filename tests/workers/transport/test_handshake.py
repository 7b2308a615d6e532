import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from controlplane.protocol import keys
from tests.workers.transport.test_channel import connected
from workers.transport import handshake
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, ConnectionClosed, TransportError, Unauthorised
from workers.transport.frames import HEADER_BYTES, Header, Op, encode_frame_header
from workers.transport.handshake import Greeting, Peer, greet_server

SERVER_KEY = b"server 0"
PEER = Peer(rank=2, instance="w2-first")
KEY = keys.data_key(SERVER_KEY, PEER.rank, PEER.instance)


def key_of(peer: Peer) -> bytes:
    return keys.data_key(SERVER_KEY, peer.rank, peer.instance)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The worker's channel and the server's socket of one connection."""
    near, far = connected()
    far.settimeout(10.0)
    worker = Channel(near)
    yield worker, far
    worker.close()
    far.close()


def greet_worker(far: socket.socket, *, a_byte_each: bool = False) -> Peer:
    """The server's side over a blocking socket."""
    greeting = Greeting(key_of)
    far.sendall(greeting.opening)
    while (answer := greeting.take(far.recv(1 if a_byte_each else greeting.due))) is None:
        pass
    far.sendall(answer.frame)
    if answer.peer is None:
        raise Unauthorised(answer.refused)
    return answer.peer


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


def test_both_ends_know_each_other_afterwards(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends
    assert together(lambda: greet_worker(server), lambda: greet_server(worker, KEY, PEER)) == [PEER, None]


@pytest.mark.parametrize(
    ("key", "says"),
    [
        pytest.param(b"guessed", PEER, id="a guessed key"),
        pytest.param(KEY, Peer(3, PEER.instance), id="the key of another rank"),
        pytest.param(KEY, Peer(PEER.rank, "w2-second"), id="the key of an earlier life"),
        pytest.param(keys.data_key(b"server 1", 2, "w2-first"), PEER, id="the key for another server"),
    ],
)
def test_a_worker_with_a_wrong_key_is_refused(ends: tuple[Channel, socket.socket], key: bytes, says: Peer) -> None:
    worker, server = ends
    at_server, at_worker = together(lambda: greet_worker(server), lambda: greet_server(worker, key, says))
    assert isinstance(at_server, Unauthorised)
    assert isinstance(at_worker, Unauthorised)
    assert str(at_server) == f"worker {says.rank} ({says.instance}) does not hold its key"
    assert "the credential does not fit this worker and this server" in str(at_worker)


def test_a_server_without_the_key_is_found_out(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends

    def impostor() -> None:
        channel = Channel(server)
        channel.send(Header(op=Op.CHALLENGE), bytes(32))
        hello = channel.receive_bytes(channel.receive())
        channel.send(Header(op=Op.WELCOME), hello[32:64])  # the worker's own proof, sent back to it

    _, at_worker = together(impostor, lambda: greet_server(worker, KEY, PEER))
    assert isinstance(at_worker, Unauthorised)
    assert str(at_worker) == "worker 2: the server does not hold the key that it should share with it"


def test_an_old_proof_is_worth_nothing_under_a_new_challenge(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends
    recorded = bytes(32) + keys.proof(KEY, b"worker" + bytes(32) + bytes(32)) + PEER.instance.encode()

    def replay() -> None:
        worker.receive_bytes(worker.receive())
        worker.send(Header(op=Op.HELLO, rank=PEER.rank), recorded)

    at_server, _ = together(lambda: greet_worker(server), replay)
    assert isinstance(at_server, Unauthorised)


def test_a_request_before_the_handshake_is_no_handshake(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends
    worker.send(Header(op=Op.PULL))
    with pytest.raises(BadHeader, match="expected HELLO or PEER_HELLO in the handshake, found PULL"):
        greet_worker(server)


def test_no_one_may_announce_megabytes_before_the_handshake(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends
    worker.send(Header(op=Op.HELLO), bytes(513))
    with pytest.raises(BadHeader, match="payload of 513 bytes announced, at most 512"):
        greet_worker(server)


def test_a_hello_that_arrives_byte_by_byte_is_accepted(ends: tuple[Channel, socket.socket]) -> None:
    worker, server = ends
    both = together(lambda: greet_worker(server, a_byte_each=True), lambda: greet_server(worker, KEY, PEER))
    assert both == [PEER, None]


def test_what_follows_a_hello_is_not_taken_for_a_part_of_it() -> None:
    greeting = Greeting(key_of)
    payload = bytes(32) + keys.proof(KEY, b"worker" + bytes(64)) + PEER.instance.encode()
    hello = encode_frame_header(Header(op=Op.HELLO, rank=PEER.rank), payload) + payload
    sizes = []
    while greeting.due and hello:
        sizes.append(greeting.due)
        greeting.take(hello[: greeting.due])
        hello = hello[sizes[-1] :]
    assert sizes == [HEADER_BYTES, len(payload)]


@pytest.mark.parametrize("drips", [False, True], ids=["silence", "a byte now and then"])
def test_a_worker_gives_the_whole_handshake_one_deadline(
    ends: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch, drips: bool
) -> None:
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.1)
    worker, server = ends
    over = threading.Event()

    def drip() -> None:
        for byte in Greeting(key_of).opening:
            if over.wait(0.05):
                return
            server.sendall(bytes([byte]))

    dripping = threading.Thread(target=drip if drips else over.wait)
    dripping.start()
    with pytest.raises(ConnectionClosed, match="timed out"):
        greet_server(worker, KEY, PEER)
    over.set()
    dripping.join(10.0)


def test_a_browser_is_not_mistaken_for_a_worker() -> None:
    near, far = connected()
    near.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nUser-Agent: browser\r\n\r\n")
    with pytest.raises(BadHeader, match="frame begins with b'GET ' version 47, expected b'PACE' version 1"):
        greet_worker(far)
    near.close()
    far.close()
