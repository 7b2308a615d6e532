"""Progress requests between workers in virtual time (``sampling: peers``): each takes the latency of both links."""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from controlplane.protocol.messages import WorkerHello
from controlplane.protocol.orders import PeerAddress
from controlplane.protocol.peers import PeerBarrier
from controlplane.protocol.worker import Phase, WorkerMachine
from controlplane.simulator.kernel import Kernel

HOST: Final = "simulated"
PORT: Final = 1

ANSWER_S: Final = 2.0
"""How long a worker waits for an answer, as a live one does."""


class PeerWorker(Protocol):
    """A worker that others may ask for its progress."""

    rank: int
    instance: str
    protocol: WorkerMachine

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""

    @property
    def silent_s(self) -> float | None:
        """For how long its process has hung; None if it has not."""

    def look_again(self) -> None:
        """An answer arrived: check whether the worker may continue."""


class Questions:
    """All requests of one job.

    Args:
        kernel: virtual time.
        workers: the workers by rank.
        way_s: how long a message takes from one worker to another.
        are_asked: whether workers listen for requests of others.
    """

    def __init__(
        self,
        kernel: Kernel,
        workers: Callable[[int], PeerWorker],
        way_s: Callable[[int, int], float],
        *,
        are_asked: bool,
    ) -> None:
        self._kernel, self._workers, self._way_s = kernel, workers, way_s
        self._are_asked = are_asked
        self.messages = 0
        """The number of requests and answers so far."""

    def with_address(self, hello: WorkerHello) -> WorkerHello:
        """The hello with the address for requests of others, if there are any."""
        return replace(hello, host=HOST, port=PORT) if self._are_asked else hello

    def ask(self, asker: PeerWorker) -> None:
        """Send the requests of a worker's barrier."""
        for peer in asker.protocol.peers.asks:
            self.messages += 1
            way_s = self._way_s(asker.rank, peer.rank)
            self._kernel.after(way_s, self._arrive, asker, asker.protocol.peers, peer, way_s)

    def _arrive(self, asker: PeerWorker, barrier: PeerBarrier, peer: PeerAddress, way_s: float) -> None:
        asked = self._workers(peer.rank)
        if asked.instance == peer.instance and asked.is_alive:
            self.messages += 1
            self._kernel.after(way_s, self._answer, asker, barrier, peer, asked.protocol.iteration)
        else:
            hangs = asked.instance == peer.instance and asked.silent_s is not None
            self._kernel.after(max(way_s, ANSWER_S - way_s) if hangs else way_s, self._no_answer, asker, barrier, peer)

    def _answer(self, asker: PeerWorker, barrier: PeerBarrier, peer: PeerAddress, iteration: int) -> None:
        barrier.answered(peer.rank, peer.instance, iteration, self._kernel.now)
        self._go_on(asker, barrier)

    def _no_answer(self, asker: PeerWorker, barrier: PeerBarrier, peer: PeerAddress) -> None:
        barrier.silent(peer.rank, peer.instance, self._kernel.now)
        self._go_on(asker, barrier)

    def _go_on(self, asker: PeerWorker, barrier: PeerBarrier) -> None:
        """Let the worker check again, unless its process has been replaced or it does something else."""
        if asker.protocol.peers is barrier and asker.is_alive and asker.protocol.phase is Phase.BOUNDARY:
            asker.look_again()
