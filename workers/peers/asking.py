"""The client side of progress queries: requests to several workers at once, over cached connections."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from controlplane.protocol.orders import PeerAddress
from workers.transport.connection import Connection
from workers.transport.encryption import PLAIN, Encryption
from workers.transport.errors import BadHeader, Refused, TransportError
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

log = logging.getLogger(__name__)

ANSWER_S = 2.0
"""Time limit of a response, including a new connection."""

KEPT = 64
"""Maximum number of cached connections; above it the least recently used one is closed."""

AT_ONCE = 16
"""Number of request threads."""


class PeerConnection(Connection):
    """A connection to another worker."""

    def ask(self) -> int:
        """Request the worker's current iteration.

        Raises:
            TransportError: if it does not respond within ``ANSWER_S``.
        """
        self._channel.end_after(ANSWER_S)
        self._channel.send(Header(op=Op.ASK))
        reply = self._channel.receive()
        if reply.op is Op.REFUSED:
            raise Refused(self._channel.receive_bytes(reply).decode(errors="replace"))
        if reply.op is not Op.PROGRESS:
            raise BadHeader(f"reply {reply.op.name} to a question of how far a worker is, expected PROGRESS")
        return reply.iteration


class Asker:
    """Sends requests to other workers as ``me``."""

    def __init__(self, me: Peer, encryption: Encryption = PLAIN) -> None:
        self._me, self._encryption = me, encryption
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], PeerConnection] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._said: set[str] = set()
        """Failures that were already logged."""

    def ask(self, peers: Sequence[PeerAddress]) -> list[int | None]:
        """Return the iteration of each worker; None: it did not respond."""
        if len(peers) == 1:
            return [self._ask(peers[0])]
        self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, thread_name_prefix="asking")
        return list(self._pool.map(self._ask, peers))

    def close(self) -> None:
        """Close all connections; a request in progress fails."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), OrderedDict()
        for connection in kept:
            connection.abort()
        if self._pool is not None:
            self._pool.shutdown()
        for connection in kept:
            connection.close()

    def _ask(self, peer: PeerAddress) -> int | None:
        until_s = time.monotonic() + ANSWER_S
        with self._lock:
            connection = self._kept.pop((peer.rank, peer.instance), None)
        iteration, error = self._answer(connection) if connection is not None else (None, None)
        if iteration is None and time.monotonic() < until_s:  # the cached connection was closed, maybe long ago
            connection, iteration, error = self._connect_and_ask(peer)
        if iteration is not None and connection is not None:
            self._keep(peer, connection)
        elif error is not None:
            self._note(peer, error)
        return iteration

    def _connect_and_ask(self, peer: PeerAddress) -> tuple[PeerConnection | None, int | None, TransportError | None]:
        try:
            connection = PeerConnection(peer, self._me, encryption=self._encryption, within_s=ANSWER_S)
        except TransportError as error:
            return None, None, error
        return connection, *self._answer(connection)

    def _answer(self, connection: PeerConnection) -> tuple[int | None, TransportError | None]:
        try:
            return connection.ask(), None
        except TransportError as error:
            connection.close()
            return None, error

    def _keep(self, peer: PeerAddress, connection: PeerConnection) -> None:
        with self._lock:
            old = [self._kept.pop((peer.rank, peer.instance), None)]
            self._kept[peer.rank, peer.instance] = connection
            if len(self._kept) > KEPT:
                old.append(self._kept.popitem(last=False)[1])
            self._said.discard(peer.where)
        for each in old:
            if each is not None:
                each.close()

    def _note(self, peer: PeerAddress, error: TransportError) -> None:
        with self._lock:
            is_known = peer.where in self._said
            self._said.add(peer.where)
        if not is_known:
            log.warning("%s does not say how far it is: %s", peer.where, error)
