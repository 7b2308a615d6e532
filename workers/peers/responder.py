"""The server side of progress queries: reports this worker's progress to any worker of the job, at any time."""

import logging
from collections.abc import Callable

from controlplane.protocol import keys
from controlplane.protocol.orders import ProcessOrder
from workers.server.listener import ThreadedListener
from workers.transport.channel import Channel
from workers.transport.encryption import Encryption
from workers.transport.errors import BadHeader, Refused
from workers.transport.frames import Header, Op
from workers.transport.handshake import Peer

log = logging.getLogger(__name__)


class Responder:
    """Listens from creation until ``close``.

    Args:
        order: of this process; its key authenticates workers of the same job.
        host: the address to listen on.
        progress: returns the current iteration of this worker.
        encryption: how connections are encrypted, if they are.
    """

    def __init__(self, order: ProcessOrder, host: str, progress: Callable[[], int], encryption: Encryption) -> None:
        self._key, self._progress = bytes.fromhex(order.key), progress
        self._rank = order.index
        self._listener = ThreadedListener(host, self._key_of, self._serve, self._failed, encryption=encryption)
        self.port: int = self._listener.port

    def close(self) -> None:
        """Stop responding."""
        self._listener.close()

    def _key_of(self, peer: Peer) -> bytes:
        derive = keys.data_key if peer.role == "worker" else keys.peer_key
        return derive(self._key, peer.rank, peer.instance)

    def _serve(self, channel: Channel, peer: Peer) -> None:
        while True:
            header = channel.receive()
            if header.op is not Op.ASK or header.length:
                reason = f"{header.op.name} with {header.length} bytes is not a question to a worker; ASK is"
                channel.send(Header(op=Op.REFUSED), reason.encode())
                channel.drain()
                raise BadHeader(reason) if header.op is not Op.ASK else Refused(reason)
            channel.send(Header(op=Op.PROGRESS, iteration=self._progress(), rank=self._rank))

    def _failed(self, error: Exception) -> None:
        log.error("a worker that asked could not be answered: %s", error)
