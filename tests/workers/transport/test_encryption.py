"""Who listens to the network reads no parameters, and who has no certificate of the job exchanges none."""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from controlplane.protocol import keys
from controlplane.protocol.orders import Block, Member, ServerAddress, ServerOrders
from controlplane.protocol.spec import Optimizer
from controlplane.runtime.certificates import VALID, authority_of, certificate_of
from tests.support.waiting import eventually
from tests.workers.identities import JOB_KEY, calling, identity, serving
from tests.workers.proxy import BreakingProxy
from tests.workers.transport.test_channel import encrypted
from workers.server.listener import Listener
from workers.server.meter import Meter
from workers.server.store import Store
from workers.transport.channel import Channel
from workers.transport.client import ServerConnection
from workers.transport.encryption import PLAIN, Encryption, Identity
from workers.transport.errors import BadHeader, ConnectionClosed, TransportError, Unauthorised, Unencrypted
from workers.transport.frames import HEADER_BYTES, Header, Op
from workers.transport.handshake import ENCRYPT, Peer, greet_server
from workers.workloads.rules import GradientRule

SERVER_KEY = b"server 0"
WORKER = Peer(0, "w0")
SIZE = 10_000
PATTERN = b"a distinctive parameter!"
"""Six float32 that occur in no encoding by chance."""


def key_of(peer: Peer) -> bytes:
    return keys.data_key(SERVER_KEY, peer.rank, peer.instance)


@contextmanager
def server(encryption: Encryption) -> Iterator[Listener]:
    """A server with one block of zeros; a mean gradient of -1 adds 1."""
    store = Store(lambda: np.zeros(SIZE, dtype=np.float32), lambda values, _: GradientRule(values, Optimizer(lr=1.0)))
    store.take(
        ServerOrders(
            incarnation=0,
            generation=1,
            sequence=1,
            members=[Member(rank=0, instance="w0", from_iteration=0)],
            placement_version=1,
            blocks=[Block(index=0, start=0, stop=SIZE, server=0)],
        )
    )
    failures: list[Exception] = []
    listener = Listener("127.0.0.1", store, Meter(), key_of, failures.append, encryption=encryption)
    yield listener
    store.stop()
    listener.close()
    assert failures == []


def connect(port: int, encryption: Encryption, *, peer: Peer = WORKER, instance: str = "s0") -> ServerConnection:
    address = ServerAddress(index=0, instance=instance, host="127.0.0.1", port=port, key=key_of(peer))
    return ServerConnection(address, peer, encryption=encryption)


def exchange(connection: ServerConnection, values: np.ndarray) -> np.ndarray:
    """What is pulled after a gradient was pushed that turns zeros into ``values``."""
    fields = {"generation": 1, "placement": 1}
    connection.push({0: (-values).data.cast("B")}, Header(op=Op.PUSH, iteration=0, samples=1, **fields))  # type: ignore[arg-type]
    pulled = np.empty(SIZE, dtype=np.float32)
    connection.pull({0: pulled.data.cast("B")}, Header(op=Op.PULL, iteration=1, **fields))  # type: ignore[arg-type]
    return pulled


@pytest.mark.parametrize("encrypts", [False, True], ids=["plain", "encrypted"])
def test_a_captured_stream_holds_parameters_only_where_nothing_is_encrypted(encrypts: bool) -> None:
    values = np.frombuffer(PATTERN * (4 * SIZE // len(PATTERN) + 1), dtype=np.float32)[:SIZE].copy()
    with server(serving() if encrypts else PLAIN) as listener:
        proxy = BreakingProxy(("127.0.0.1", listener.port))
        connection = connect(proxy.address[1], calling(0, "w0"))
        np.testing.assert_array_equal(exchange(connection, values), values)
        connection.close()
        proxy.close()
    pushed, pulled = sorted(map(bytes, proxy.captured), key=lambda stream: ENCRYPT[:4] == stream[:4])
    assert min(len(pushed), len(pulled)) > 4 * SIZE
    negated = (-np.frombuffer(PATTERN, dtype=np.float32)).tobytes()
    assert (negated in pushed, PATTERN in pulled) == (not encrypts, not encrypts)


@pytest.mark.parametrize("of", ["worker", "server"])
def test_a_peer_with_a_certificate_of_another_job_is_refused(of: str) -> None:
    other = b"key of another job"
    theirs = Encryption(identity("server", 0, "s0", job_key=other if of == "server" else JOB_KEY), encrypts=True)
    ours = Encryption(identity("worker", 0, "w0", job_key=other if of == "worker" else JOB_KEY))
    with server(theirs) as listener, pytest.raises(Unauthorised, match="certificate"):
        connect(listener.port, ours)


@pytest.mark.parametrize("of", ["worker", "server"])
def test_a_certificate_that_has_expired_is_refused(of: str) -> None:
    past = datetime.now(UTC) - VALID - timedelta(minutes=1)
    theirs = Encryption(identity("server", 0, "s0", now=past if of == "server" else None), encrypts=True)
    ours = Encryption(identity("worker", 0, "w0", now=past if of == "worker" else None))
    with server(theirs) as listener, pytest.raises(Unauthorised, match="expired"):
        connect(listener.port, ours)


def test_a_peer_that_shows_no_certificate_is_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with server(serving()) as listener, socket.create_connection(("127.0.0.1", listener.port), timeout=10.0) as plain:
        assert plain.recv(HEADER_BYTES, socket.MSG_WAITALL) == ENCRYPT
        with context.wrap_socket(plain) as shaken, pytest.raises(ssl.SSLError, match="certificate required"):
            shaken.recv(1)


def test_a_worker_does_not_pass_for_a_server() -> None:
    impostor = Encryption(identity("worker", 1, "s0"), encrypts=True)
    with server(impostor) as listener, pytest.raises(Unauthorised, match="certificate"):
        connect(listener.port, calling(0, "w0"))


def test_another_server_of_the_job_is_not_taken_for_this_one() -> None:
    with server(serving(1, "s1")) as listener, pytest.raises(Unauthorised, match=r"mismatch.*'s0'"):
        connect(listener.port, calling(0, "w0"))


def test_a_hello_in_the_name_of_another_instance_is_refused() -> None:
    with server(serving()) as listener, pytest.raises(Unauthorised, match="the certificate is not that of this worker"):
        connect(listener.port, calling(1, "w1"), peer=WORKER)


def test_a_peer_that_does_not_encrypt_gets_nowhere() -> None:
    with server(serving()) as listener:
        channel = Channel(socket.create_connection(("127.0.0.1", listener.port), timeout=10.0))
        with pytest.raises(BadHeader, match="the server encrypts"):
            greet_server(channel, key_of(WORKER), WORKER)
        channel.send(Header(op=Op.HELLO), bytes(64))
        with pytest.raises(TransportError):  # an alert, or the end
            channel.receive()
        channel.close()


def test_older_versions_of_tls_are_refused() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with server(serving()) as listener, socket.create_connection(("127.0.0.1", listener.port), timeout=10.0) as plain:
        plain.recv(HEADER_BYTES, socket.MSG_WAITALL)
        with pytest.raises(OSError, match="protocol version"):
            context.wrap_socket(plain)


def meet(host: str, encryption: Encryption, *, encrypts: bool) -> None:
    """Continue with a server at that address, whatever is there."""
    near, far = socket.socketpair()
    with near, far:
        address = ServerAddress(index=3, instance="s3", host=host, port=4000, key=b"")
        encryption.meet(Channel.__new__(Channel), address, encrypts=encrypts)


def test_a_worker_does_not_connect_to_an_unencrypted_server_on_another_machine() -> None:
    with pytest.raises(Unencrypted, match=r"server 3 at 10\.0\.0\.5:4000 does not encrypt, expected TLS.*--insecure"):
        meet("10.0.0.5", calling(0, "w0"), encrypts=False)
    meet("127.0.0.1", calling(0, "w0"), encrypts=False)
    meet("10.0.0.5", Encryption(allows_plain=True), encrypts=False)


def test_a_process_without_a_certificate_reports_whose_release_to_update() -> None:
    with pytest.raises(Unencrypted, match=r"server 3 at 10\.0\.0\.5:4000 encrypts, and the control plane gave.*update"):
        meet("10.0.0.5", Encryption(), encrypts=True)
    with pytest.raises(Unencrypted, match=r"should encrypt, and its control plane gave it no certificate.*update it"):
        Encryption(None, encrypts=True)


def test_an_aborted_connection_sends_nothing_readable() -> None:
    """``SSLSocket.shutdown`` turns encryption off before it ends the connection; another thread may be sending."""
    worker, far = encrypted()
    channel, plain = Channel(worker), []
    original = socket.socket.sendall

    def sent_plain(self: socket.socket, data: bytes) -> None:  # pragma: no cover - nothing may come here
        plain.append(data)

    channel.abort()
    try:
        socket.socket.sendall = sent_plain  # type: ignore[method-assign, assignment]
        with pytest.raises(ConnectionClosed):
            channel.send(Header(op=Op.PUSH), bytes(100_000))
    finally:
        socket.socket.sendall = original  # type: ignore[method-assign]
    assert plain == []
    far.close()
    channel.close()


def test_reconnecting_shows_the_certificate_again() -> None:
    with server(serving()) as listener:
        for _ in range(3):
            connection = connect(listener.port, calling(0, "w0"))
            session = connection._channel._socket
            assert isinstance(session, ssl.SSLSocket)
            assert (session.version(), session.session_reused) == ("TLSv1.3", False)
            connection.close()


def test_strangers_half_through_tls_keep_no_one_out() -> None:
    with server(serving()) as listener:
        strangers = [socket.create_connection(("127.0.0.1", listener.port), timeout=10.0) for _ in range(30)]
        for at, stranger in enumerate(strangers):
            stranger.sendall(os.urandom(at) if at % 2 else b"\x16\x03\x01")
        eventually(lambda: connect(listener.port, calling(0, "w0")), what="the worker's connection").close()
        for stranger in strangers:
            stranger.close()


def test_every_control_plane_process_has_the_same_authority_and_each_job_its_own() -> None:
    first = authority_of(JOB_KEY)
    authority_of.cache_clear()
    assert authority_of(JOB_KEY) == first != authority_of(b"another")


def test_a_certificate_names_one_instance_and_expires() -> None:
    now = datetime(2030, 5, 1, 12, tzinfo=UTC)
    key = keys.process_key(JOB_KEY, "worker", 3, "w3.0.2")
    found = x509.load_der_x509_certificate(certificate_of(JOB_KEY, key, "worker", "w3.0.2", now=now))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["w3.0.2"]
    assert (found.not_valid_before_utc, found.not_valid_after_utc) == (now - timedelta(days=1), now + VALID)
    assert key not in found.public_bytes(Encoding.DER)
    assert len(found.public_bytes(Encoding.DER)) < 600


def test_an_identity_does_not_show_its_key() -> None:
    mine: Identity = identity("worker", 0, "w0")
    assert repr(mine) == "Identity()"


def test_threads_may_send_while_another_aborts() -> None:
    worker, far = encrypted()
    channel, ends = Channel(worker), []

    def send() -> None:
        try:
            while True:
                channel.send(Header(op=Op.PUSH), bytes(1 << 20))
        except ConnectionClosed as end:
            ends.append(end)

    sending = threading.Thread(target=send)
    sending.start()
    far.recv(100_000)
    channel.abort()
    sending.join(10.0)
    assert len(ends) == 1
    far.close()
    channel.close()
