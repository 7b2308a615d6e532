"""One worker asks others how far they are, over sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from controlplane.protocol import keys
from controlplane.protocol.orders import PeerAddress, ProcessOrder
from tests.workers.driver import job_spec
from tests.workers.identities import JOB_KEY, calling, certified
from workers.peers.asking import ANSWER_S, Asker, PeerConnection
from workers.peers.responder import Responder
from workers.transport.encryption import PLAIN, Encryption, Identity
from workers.transport.errors import Unauthorised
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

ME, INSTANCE, SPEC = Peer(0, "w0.0.1"), "w1.0.1", job_spec(workers=2)


def order_of(instance: str = INSTANCE, *, listens: bool = True) -> ProcessOrder:
    certificate = certified("worker", 1, instance, listens=listens)
    return ProcessOrder(job=1, role="worker", index=1, instance=instance, slot=0, spec=SPEC, **certificate)


def address_of(responder: Responder, *, reader: Peer = ME, instance: str = INSTANCE) -> PeerAddress:
    key = keys.data_key(keys.process_key(JOB_KEY, "worker", 1, instance), reader.rank, reader.instance)
    return PeerAddress(rank=1, host="127.0.0.1", port=responder.port, instance=instance, key=key)


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def encrypts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def responder(encrypts: bool) -> Iterator[Responder]:
    order = order_of()
    serving = Encryption(Identity.of(order), encrypts=encrypts)
    with closing(Responder(order, "127.0.0.1", lambda: 7, serving)) as responder:
        yield responder


@pytest.fixture
def asker(encrypts: bool) -> Iterator[Asker]:
    with closing(Asker(ME, calling(0, ME.instance) if encrypts else PLAIN)) as asker:
        yield asker


def test_a_worker_reports_its_progress_at_the_requested_interval(responder: Responder, asker: Asker) -> None:
    address = address_of(responder)
    assert asker.ask([address]) == [7]
    assert asker.ask([address, address]) == [7, 7]


def test_one_that_does_not_hold_the_key_learns_nothing(responder: Responder, asker: Asker) -> None:
    with pytest.raises(Unauthorised):
        PeerConnection(address_of(responder, reader=Peer(2, "w2.0.1")), ME, encryption=asker._encryption)
    assert asker.ask([address_of(responder, instance="w1.0.2")]) == [None]


def test_nothing_else_can_be_done_with_a_worker(responder: Responder, asker: Asker) -> None:
    connection = PeerConnection(address_of(responder), ME, encryption=asker._encryption)
    connection._channel.send(Header(op=Op.PULL))
    assert connection._channel.receive().op is Op.REFUSED
    connection.close()


def test_a_worker_that_is_gone_is_unresponsive_at_once(responder: Responder, asker: Asker) -> None:
    address = address_of(responder)
    assert asker.ask([address]) == [7]
    responder.close()
    assert asker.ask([address]) == [None]


def test_a_worker_that_hangs_is_unresponsive_after_a_while() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging, closing(Asker(ME)) as asker:
        address = PeerAddress(rank=1, host="127.0.0.1", port=hanging.getsockname()[1], instance=INSTANCE, key=b"k" * 32)
        began = time.monotonic()
        assert asker.ask([address]) == [None]
        assert time.monotonic() - began >= ANSWER_S


def test_a_certificate_that_serves_to_connect_alone_does_not_serve_to_answer() -> None:
    order = order_of(listens=False)
    serving = Encryption(Identity.of(order), encrypts=True)
    impostor = Responder(order, "127.0.0.1", lambda: 7, serving)
    with closing(impostor), closing(Asker(ME, calling(0, ME.instance))) as asker:
        assert asker.ask([address_of(impostor)]) == [None]
