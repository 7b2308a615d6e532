"""A real parameter server for a job of the fuzzer, in a separate process, with constant orders.

It has one block, and expects another at the next placement; its only worker is the fuzzer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import psutil

from benchmarks.dataplane.memory import Link
from benchmarks.dataplane.processes import spawning
from benchmarks.security.data_plane import HOST, OwnServer
from controlplane.protocol.keys import data_key, peer_key, process_key
from controlplane.protocol.messages import ServerHello
from controlplane.protocol.orders import ELEMENT_BYTES, Block, Member, ProcessOrder, ServerOrders
from controlplane.protocol.spec import JobSpec, Stop, Workload
from workers.transport.handshake import Peer

JOB_KEY: Final = b"the fuzzer's own job"
WORKER: Final = Peer(0, "worker0")
OTHER: Final = Peer(1, "server1", "server")
BEGIN_S: Final = 120.0


class Started(msgspec.Struct, kw_only=True, frozen=True):
    """The server and its process."""

    own: OwnServer
    process: int

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        try:
            return bool(psutil.Process(self.process).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


@contextmanager
def own_server() -> Iterator[Started]:
    """Start it; it ends with the block.

    Raises:
        TimeoutError: if it does not begin.
    """
    order = _order()
    with spawning(ask=False) as start:
        control = start(_serve, order)
        if not control.poll(BEGIN_S):
            raise TimeoutError(f"the fuzzer's own server did not begin within {BEGIN_S:.0f} s")
        process, port, elements = control.recv()
        key = bytes.fromhex(order.key)
        own = OwnServer(
            port=port,
            worker=WORKER,
            worker_key=data_key(key, WORKER.rank, WORKER.instance),
            server=OTHER,
            server_key=peer_key(key, OTHER.rank, OTHER.instance),
            block_bytes=ELEMENT_BYTES * elements,
        )
        yield Started(own=own, process=process)


def _order() -> ProcessOrder:
    spec = JobSpec(
        name="fuzzed",
        workload=Workload(name="softmax-regression", dataset="digits"),
        workers=1,
        servers=2,
        batch_size=16,
        stop=Stop(iterations=10**6),
    )
    key = process_key(JOB_KEY, "server", 0, "server0").hex()
    return ProcessOrder(job=1, role="server", index=0, instance="server0", slot=0, key=key, spec=spec)


def _serve(order: ProcessOrder, control: Connection) -> None:
    import logging
    import os

    from workers.server.main import serve
    from workers.workloads.local import NOWHERE

    class Taking(Link):
        elements = port = 0

        def on_orders(self, take: Callable[[Any], None]) -> None:
            take(
                ServerOrders(
                    incarnation=0,
                    generation=1,
                    sequence=1,
                    members=[Member(rank=WORKER.rank, instance=WORKER.instance, from_iteration=0)],
                    placement_version=1,
                    next_placement=2,
                    blocks=[Block(index=0, start=0, stop=self.elements, server=0)],
                )
            )
            control.send((os.getpid(), self.port, self.elements))

    def on_say(message: Any) -> None:
        if isinstance(message, ServerHello):
            link.elements, link.port = sum(message.tensor_sizes), message.port

    logging.getLogger("workers.server").setLevel(logging.ERROR)  # else a line for each refusal
    link = Taking(on_say)
    serve(order, link, host=HOST, local=NOWHERE)
