"""Progress queries of a worker that samples its peers itself: sends requests, and responds to those of others."""

from collections.abc import Callable
from types import TracebackType

from controlplane.protocol.base import MAX_INT32
from controlplane.protocol.orders import Placement, ProcessOrder
from controlplane.protocol.worker import Phase, WorkerMachine
from workers.peers.asking import Asker
from workers.peers.responder import Responder
from workers.transport.encryption import Encryption, Identity
from workers.transport.handshake import Peer
from workers.workloads.local import Local


class Neighbours:
    """Responds to requests from creation until ``close``.

    Args:
        order: of this process.
        worker: the worker whose progress is reported to its peers.
        local: this machine's address, and whether it encrypts.
    """

    def __init__(self, order: ProcessOrder, worker: WorkerMachine, local: Local) -> None:
        self._worker = worker
        identity = Identity.of(order)
        serving = Encryption(identity, encrypts=local.encrypts, allows_plain=local.insecure)
        self._responder = Responder(order, local.host, self._progress, serving)
        self._asker = Asker(Peer(order.index, order.instance), serving)
        self._known = (-1, -1)
        self.address = (local.announced or local.host, self._responder.port)
        """The address for other workers' requests."""

    def __enter__(self) -> "Neighbours":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._responder.close()
        self._asker.close()

    def follow(self, placement: Placement | None) -> None:
        """Use the members of the newest roster from now on."""
        if placement is not None and placement.peers and self._known < (placement.incarnation, placement.generation):
            self._known = (placement.incarnation, placement.generation)
            self._worker.peers.enlist(placement.peers, self._known)

    def ask(self, now: Callable[[], float]) -> None:
        """Query the workers that the barrier selects, and pass it the results."""
        peers = list(self._worker.peers.asks)
        for peer, iteration in zip(peers, self._asker.ask(peers), strict=True):
            if iteration is None:
                self._worker.peers.silent(peer.rank, peer.instance, now())
            else:
                self._worker.peers.answered(peer.rank, peer.instance, iteration, now())

    def _progress(self) -> int:
        """The current iteration of this worker; a finished worker reports one at which no other has to wait for it."""
        return MAX_INT32 if self._worker.phase is Phase.FINISHED else self._worker.iteration
