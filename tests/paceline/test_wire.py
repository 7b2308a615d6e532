"""The connections of a script are read, and stay the script's own."""

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from paceline.wire import ACKED_AT, LENGTH, Wire, borrowed

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has statistics of connections")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with client, accepted:
        yield client, accepted


Pair = tuple[socket.socket, socket.socket]


def test_bytes_that_a_connection_delivers_take_time(pair: Pair) -> None:
    client, accepted = pair
    wire = Wire()
    assert wire.took_s() == 0.0
    client.sendall(bytes(100_000))
    received = 0
    while received < 100_000:
        received += len(accepted.recv(65536))
    while (
        int.from_bytes(
            client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)[ACKED_AT : ACKED_AT + 8], "little"
        )
        < 100_000
    ):
        pass  # until the receiver's kernel has acknowledged
    assert wire.took_s() > 0.0


def test_the_peer_of_a_connection_that_the_script_closes_sees_its_end(pair: Pair) -> None:
    client, accepted = pair
    wire = Wire()
    wire.look()
    assert client.fileno() in wire.descriptors
    client.close()
    accepted.settimeout(60.0)
    assert accepted.recv(1) == b""
    assert wire.took_s() == 0.0


def test_a_descriptor_of_another_file_is_not_taken_for_the_connection(pair: Pair) -> None:
    client, _ = pair
    wire = Wire()
    wire.look()
    number = client.fileno()
    with socket.socket() as other:
        os.dup2(other.fileno(), number)
        assert wire.took_s() == 0.0
        wire.look()
        assert os.fstat(number).st_ino == os.fstat(other.fileno()).st_ino


def test_a_borrowed_socket_stays_open(pair: Pair) -> None:
    client, accepted = pair
    with borrowed(client.fileno()) as sock:
        assert sock.getpeername() == accepted.getsockname()
    client.sendall(b"x")
    assert accepted.recv(1) == b"x"
