import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from controlplane.protocol.orders import ServerAddress
from tests.workers.identities import calling, serving
from workers.transport.channel import Channel
from workers.transport.errors import BadHeader, BadPayload, ConnectionClosed, Oversized
from workers.transport.frames import HEADER_BYTES, MAX_PAYLOAD_BYTES, Header, Op, encode_header

Pair = tuple[socket.socket, Channel]


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    return near, far


def encrypted() -> tuple[socket.socket, socket.socket]:
    """Both ends of an encrypted connection: a worker's, and a server's."""
    near, far = connected()
    server = serving().accept(far)
    shaking = threading.Thread(target=server.do_handshake)
    shaking.start()
    worker = Channel(near)
    address = ServerAddress(index=0, instance="s0", host="127.0.0.1", port=1, key=b"")
    calling(0, "w0").meet(worker, address, encrypts=True)
    shaking.join(10.0)
    return worker._socket, server


@pytest.fixture(params=[connected, encrypted], ids=["plain", "encrypted"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A raw socket, and the channel at its other end."""
    raw, other = request.param()
    channel = Channel(other)
    yield raw, channel
    channel.close()
    raw.close()


def test_a_payload_lands_in_the_memory_that_was_given(pair: Pair) -> None:
    raw, channel = pair
    sender, room = Channel(raw), bytearray(10)
    sender.send(Header(op=Op.PUSH, block=3, samples=17), b"abcdef")
    header = channel.receive()
    channel.receive_payload(header, memoryview(room))
    assert header == Header(op=Op.PUSH, block=3, samples=17, length=6)
    assert room == b"abcdef\0\0\0\0"


def test_a_payload_of_megabytes_arrives_whole(pair: Pair) -> None:
    raw, channel = pair
    payload = bytes(range(256)) * 16384
    sending = threading.Thread(target=Channel(raw).send, args=(Header(op=Op.VALUES, checked=True), payload))
    sending.start()
    assert channel.receive_bytes(channel.receive()) == payload
    sending.join()


def test_a_payload_that_does_not_match_its_checksum_is_refused(pair: Pair) -> None:
    raw, channel = pair
    raw.sendall(encode_header(Header(op=Op.PUSH, checked=True, block=4, length=3, payload_checksum=1)) + b"abc")
    with pytest.raises(BadPayload, match="PUSH of block 4 does not match its checksum"):
        channel.receive_bytes(channel.receive())


def test_without_the_flag_the_payload_is_not_checked(pair: Pair) -> None:
    raw, channel = pair
    raw.sendall(encode_header(Header(op=Op.PUSH, length=3, payload_checksum=1)) + b"abc")
    assert channel.receive_bytes(channel.receive()) == b"abc"


def test_a_payload_without_room_is_refused_before_it_is_read(pair: Pair) -> None:
    raw, channel = pair
    raw.sendall(encode_header(Header(op=Op.VALUES, block=4, length=8)))
    with pytest.raises(Oversized, match="VALUES of block 4 has 8 bytes, room for 4"):
        channel.receive_payload(channel.receive(), memoryview(bytearray(4)))


@pytest.mark.parametrize("sent", [0, 1, HEADER_BYTES - 1])
def test_the_end_within_a_header_is_the_end_of_the_connection(pair: Pair, sent: int) -> None:
    raw, channel = pair
    raw.sendall(encode_header(Header(op=Op.PUSH))[:sent])
    raw.close()
    with pytest.raises(ConnectionClosed, match=f"{HEADER_BYTES - sent} bytes not yet received"):
        channel.receive()


def test_the_end_within_a_payload_is_the_end_of_the_connection(pair: Pair) -> None:
    raw, channel = pair
    raw.sendall(encode_header(Header(op=Op.PUSH, length=100)) + b"x" * 60)
    raw.close()
    with pytest.raises(ConnectionClosed, match="40 bytes not yet received"):
        channel.receive_bytes(channel.receive())


def test_a_reset_is_the_end_of_the_connection(pair: Pair) -> None:
    raw, channel = pair
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    with pytest.raises(ConnectionClosed):
        channel.receive()


def test_an_altered_header_is_a_bad_header(pair: Pair) -> None:
    raw, channel = pair
    frame = bytearray(encode_header(Header(op=Op.PUSH, length=100)))
    frame[40] ^= 1
    raw.sendall(frame)
    with pytest.raises(BadHeader):
        channel.receive()


def test_abort_wakes_a_thread_that_is_blocked(pair: Pair) -> None:
    _, channel = pair
    ends: list[Exception] = []

    def wait() -> None:
        try:
            channel.receive()
        except ConnectionClosed as end:
            ends.append(end)

    blocked = threading.Thread(target=wait)
    blocked.start()
    channel.abort()
    blocked.join(10.0)
    assert len(ends) == 1


def test_sending_to_a_lost_peer_ends_the_connection(pair: Pair) -> None:
    raw, channel = pair
    raw.close()
    with pytest.raises(ConnectionClosed, match="peer gone while sending PUSH"):
        channel.send(Header(op=Op.PUSH), bytes(MAX_PAYLOAD_BYTES))


def test_the_senders_header_is_not_altered_by_its_payload(pair: Pair) -> None:
    raw, channel = pair
    header = Header(op=Op.PUSH, checked=True)
    Channel(raw).send(header, b"abc")
    received = channel.receive()
    assert replace(received, length=0, payload_checksum=0) == header == Header(op=Op.PUSH, checked=True)
