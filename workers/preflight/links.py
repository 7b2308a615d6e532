"""Both ends of a link test, with the handshake, frames and encryption of parameter transfers."""

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from controlplane.protocol.base import MAX_TEXT
from controlplane.protocol.keys import certificate_seed, data_key
from controlplane.protocol.machine_tests import (
    LINK_BYTES,
    LINK_S,
    LINKS_S,
    MOST_LINK_BYTES,
    FarEnd,
    ListenOrder,
    MachineTestOrder,
    MeasuredLink,
)
from workers.server.acceptor import Acceptor
from workers.setup import Setup
from workers.transport.channel import Channel
from workers.transport.client import ServerConnection
from workers.transport.encryption import Encryption, Identity
from workers.transport.errors import BadHeader, TransportError
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

ROUND_TRIPS: Final = 50
SMALL: Final = bytes(64)
"""The payload for round-trip times."""

PATIENCE_S: Final = 10.0
"""Time limit of a link, including its handshake; links are also abandoned if less than this is left of ``LINKS_S``."""


class Echo:
    """Listens until the tested machine is done, or ``close``; echoes what it receives, within a limit.

    Raises:
        OSError: if it cannot listen on the machine's address.
        Unencrypted: if it must encrypt but has no certificate.
    """

    def __init__(self, order: ListenOrder, setup: Setup) -> None:
        self._over: SimpleQueue[None] = SimpleQueue()
        self._left_bytes = MOST_LINK_BYTES + ROUND_TRIPS * len(SMALL)
        """Bytes that all connections together may still send."""
        self._lock = threading.Lock()
        key = bytes.fromhex(order.key)
        self._acceptor = Acceptor(
            setup.host,
            lambda peer: data_key(key, peer.rank, peer.instance),
            self._admit,
            encryption=Encryption(identity_of(order), encrypts=setup.encrypts, allows_plain=setup.insecure),
        )
        self.port: int = self._acceptor.port

    def wait(self, seconds: float) -> None:
        """Wait until the tested machine is done, with a time limit."""
        with contextlib.suppress(Exception):
            self._over.get(timeout=seconds)

    def close(self) -> None:
        """Stop listening."""
        self._acceptor.close()

    def _admit(self, connected: socket.socket, _: Peer) -> None:
        threading.Thread(target=self._serve, args=(Channel(connected),), name="echo", daemon=True).start()

    def _serve(self, channel: Channel) -> None:
        try:
            while True:
                header = channel.receive(limit=LINK_BYTES)
                if header.op is not Op.PROBE:
                    raise BadHeader(f"found {header.op.name} in the test of a machine, expected PROBE")
                self._count(header.length)
                channel.send(Header(op=Op.PROBED), channel.receive_bytes(header))
        except TransportError:
            pass
        finally:
            channel.close()
            self._over.put(None)

    def _count(self, length: int) -> None:
        with self._lock:
            self._left_bytes -= length
            if self._left_bytes < 0:
                raise BadHeader(f"more than {MOST_LINK_BYTES} bytes in the test of a link")


def measure(order: MachineTestOrder, setup: Setup) -> list[MeasuredLink]:
    """Measure the link to each far end, one after the other, within ``LINKS_S``; links not measured by then are marked.

    On a thread, since nothing else limits the duration of a host name lookup.
    """
    measured: SimpleQueue[MeasuredLink] = SimpleQueue()
    end_s = time.monotonic() + LINKS_S

    def remaining_s() -> float:
        return max(0.0, end_s - time.monotonic())

    def measure_each() -> None:
        for far_end in order.far_ends:
            if not remaining_s():
                return
            try:
                measured.put(_measured(far_end, order, setup, remaining_s))
            except Exception as error:  # as in the other parts of a test, any exception is the result
                measured.put(
                    MeasuredLink(machine=far_end.machine, failure=f"{type(error).__name__}: {error}"[:MAX_TEXT])
                )

    threading.Thread(target=measure_each, name="links", daemon=True).start()
    found: list[MeasuredLink] = []
    with contextlib.suppress(Empty):
        while len(found) < len(order.far_ends):
            found.append(measured.get(timeout=remaining_s()))
    why = f"it was not measured: all links together have {LINKS_S:g} s"
    return found + [MeasuredLink(machine=each.machine, failure=why) for each in order.far_ends[len(found) :]]


def identity_of(order: MachineTestOrder | ListenOrder) -> Identity | None:
    """The machine's key; None if the control plane did not issue a certificate."""
    if not (order.certificate and order.authority):
        return None
    seed = certificate_seed(bytes.fromhex(order.key))
    return Identity(certificate=order.certificate, seed=seed, authority=order.authority)


def _measured(far_end: FarEnd, order: MachineTestOrder, setup: Setup, remaining_s: Callable[[], float]) -> MeasuredLink:
    try:
        encryption = Encryption(identity_of(order), allows_plain=setup.insecure)
        connection = ServerConnection(far_end.address, Peer(0, order.instance), encryption=encryption)
    except TransportError as error:
        return MeasuredLink(machine=far_end.machine, failure=str(error))
    patience_s = min(PATIENCE_S, remaining_s())
    patience = threading.Timer(patience_s, connection.abort)
    patience.daemon = True
    patience.start()
    begin_s = time.monotonic()
    try:
        round_trip_s = statistics.median(_timed(connection, SMALL) for _ in range(ROUND_TRIPS))
        payload, took_s, end_s = bytes(LINK_BYTES), list[float](), time.monotonic() + LINK_S
        while not took_s or (time.monotonic() < end_s and (len(took_s) + 1) * LINK_BYTES <= MOST_LINK_BYTES):
            took_s.append(_timed(connection, payload))
    except TransportError as error:
        late = time.monotonic() - begin_s >= patience_s
        why = f"it was not measured within {patience_s:.3g} s" if late else str(error)
        return MeasuredLink(machine=far_end.machine, failure=why)
    finally:
        patience.cancel()
        connection.close()
    rate = 2.0 * LINK_BYTES / max(1e-9, statistics.median(took_s))
    return MeasuredLink(machine=far_end.machine, round_trip_s=round_trip_s, bytes_per_s=rate)


def _timed(connection: ServerConnection, payload: bytes) -> float:
    begin_s = time.monotonic()
    connection.probe(payload)
    return time.monotonic() - begin_s
