"""Drives real trainers and servers as threads over loopback sockets, in the place of a control plane.

The links keep what is said and hand on what they are given; the cluster turns each report into the next orders.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import numpy as np

from controlplane.core.placing import cut_blocks
from controlplane.protocol import keys
from controlplane.protocol.messages import Evaluation, IterationReport, ServerHello, ServerReport, WorkerFinished
from controlplane.protocol.orders import (
    Block,
    Member,
    Orders,
    Placement,
    ProcessOrder,
    ServerAddress,
    ServerOrders,
)
from controlplane.protocol.spec import Emulation, Evaluate, JobSpec, Optimizer, Stop, Workload
from tests.workers.identities import certified
from workers.server.main import serve
from workers.spawner import warmth
from workers.trainer.loop import train
from workers.workloads.local import NOWHERE, Local

assert warmth.BROUGHT  # as in every process of a job: nothing is left to import, and torch computes on one thread

DEADLINE_S = 100.0

Message = TypeVar("Message")
Vector = np.ndarray[Any, Any]


class Link:
    """What both kinds of links share: numbered messages, and a condition for whatever changes."""

    def __init__(self, on_say: Callable[[Any], None] = lambda message: None) -> None:
        self.stopping = threading.Event()
        self.in_reach = True
        self.changed = threading.Condition(threading.RLock())
        self.said: list[Any] = []
        self._on_say = on_say

    def say(self, build: Callable[[int], Any]) -> None:
        with self.changed:
            message = build(len(self.said) + 1)
            self.said.append(msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)))
            self.changed.notify_all()
        self._on_say(message)

    def heard(self, kind: type[Message]) -> list[Message]:
        with self.changed:
            return [message for message in self.said if isinstance(message, kind)]

    def await_said(self, kind: type[Message], count: int = 1) -> list[Message]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.heard(kind)) >= count, DEADLINE_S), f"no {kind.__name__}"
            return self.heard(kind)

    def stop(self) -> None:
        with self.changed:
            self.stopping.set()
            self.changed.notify_all()


class MemoryWorkerLink(Link):
    """A ``WorkerLink`` whose other end is the test."""

    def __init__(self, on_say: Callable[[Any], None] = lambda message: None) -> None:
        super().__init__(on_say)
        self.waits = 0
        self._orders: Orders | None = None
        self._placement: Placement | None = None

    def give(self, orders: Orders) -> None:
        with self.changed:
            if self._orders is None or orders.rank_in_time > self._orders.rank_in_time:
                self._orders = orders
                self.changed.notify_all()

    def place(self, placement: Placement) -> None:
        with self.changed:
            self._placement = placement
            self.changed.notify_all()

    def orders(self) -> Orders | None:
        return self._orders

    def await_orders(self, accept: Callable[[Orders], bool], timeout_s: float | None = None) -> Orders | None:
        with self.changed:
            if self._orders is None or not accept(self._orders):
                self.waits += 1
            self.changed.wait_for(
                lambda: self.stopping.is_set() or (self._orders is not None and accept(self._orders)), timeout_s
            )
            ready = self._orders is not None and not self.stopping.is_set() and accept(self._orders)
            return self._orders if ready else None

    def placement(self) -> Placement | None:
        return self._placement

    def await_placement(self, version: int, timeout_s: float | None = None) -> Placement | None:
        with self.changed:
            self.changed.wait_for(
                lambda: self.stopping.is_set() or (self._placement is not None and self._placement.version >= version),
                timeout_s,
            )
            return None if self.stopping.is_set() else self._placement


class MemoryServerLink(Link):
    """A ``ServerLink`` whose other end is the test."""

    def __init__(self) -> None:
        super().__init__()
        self._takers: list[Callable[[ServerOrders], None]] = []
        self._orders: ServerOrders | None = None

    def on_orders(self, take: Callable[[ServerOrders], None]) -> None:
        with self.changed:
            self._takers.append(take)
            self.changed.notify_all()
        if self._orders is not None:
            take(self._orders)

    def give(self, orders: ServerOrders) -> None:
        self._orders = orders
        for take in self._takers:
            take(orders)


@dataclass
class Process:
    """A worker or server on a thread, with its end."""

    order: ProcessOrder
    link: Any
    run: Callable[[], None]
    error: BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    def _main(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), f"{self.order.role} {self.order.index} hangs"
        if self.error is not None:
            raise self.error


def job_spec(*, workers: int, servers: int = 1, **changes: Any) -> JobSpec:
    """A small job on digits."""
    defaults: dict[str, Any] = {
        "name": "test",
        "workload": Workload(name="softmax-regression"),
        "workers": workers,
        "servers": servers,
        "batch_size": 16,
        "optimizer": Optimizer(lr=0.5),
        "evaluate": Evaluate(every=1000),
        "stop": Stop(iterations=1),
        "seed": 7,
    }
    return JobSpec(**(defaults | changes))


Shares = Sequence[int]


class Cluster(AbstractContextManager["Cluster"]):
    """One job: its servers and workers, and orders by a schedule of shares.

    Args:
        schedule: shares of all ranks for each iteration; the run ends after the last.
        emulate: the machine of each rank.
        block_bytes: small values cut the parameters into many blocks.
        through: the address under which workers reach that of a server.
        local: what every machine allows and has.
    """

    def __init__(
        self,
        spec: JobSpec,
        schedule: Sequence[Shares],
        *,
        emulate: Sequence[Emulation | None] = (),
        block_bytes: int = 1024,
        through: Callable[[str, int], tuple[str, int]] = lambda host, port: (host, port),
        local: Local = NOWHERE,
    ) -> None:
        self.spec, self.schedule, self.local = spec, schedule, local
        self.emulate = list(emulate) or [None] * spec.workers
        self.block_bytes, self.through = block_bytes, through
        self.generation = 1
        self.sequence = 0
        self.withheld: set[tuple[int, int]] = set()
        self.lock = threading.Lock()
        self.roster = [Member(rank=r, instance=f"w{r}", from_iteration=0) for r in range(spec.workers)]
        self.models: dict[int, Mapping[str, Vector]] = {}
        self.servers = [self._server(index) for index in range(spec.servers)]
        self.workers: list[Process] = []

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        everyone = [*self.workers, *self.servers]
        for process in everyone:
            process.link.stop()
        for process in everyone:
            process.thread.join(DEADLINE_S)
        hanging = [f"{p.order.role} {p.order.index}" for p in everyone if p.thread.is_alive()]
        assert not hanging, f"still running: {hanging}"

    @property
    def parameters(self) -> Vector:
        """The final parameters as one vector."""
        (model,) = self.models.values()
        return np.concatenate([array.ravel() for array in model.values()])

    def run(self) -> "Cluster":
        """From the first orders to everyone's end."""
        self.start()
        for worker in self.workers:
            worker.join()
        return self

    def start(self) -> None:
        """Place the blocks, appoint the roster, start the workers, give the first orders."""
        hellos = [server.link.await_said(ServerHello)[0] for server in self.servers]
        slices = cut_blocks(hellos[0].tensor_sizes, block_bytes=self.block_bytes)
        self.blocks = [
            Block(index=at, start=start, stop=stop, server=at % len(self.servers))
            for at, (start, stop) in enumerate(slices)
        ]
        self.addresses = [self.through(hello.host, hello.port) for hello in hellos]
        self.appoint(self.roster)
        for member in self.roster:
            self.add_worker(member.rank, member.instance)
            self.grant(member.rank, 0)

    def grants(self, rank: int, iteration: int) -> bool:
        """Whether a report leads to the orders for the next iteration by itself."""
        return (rank, iteration) not in self.withheld

    def appoint(self, members: list[Member]) -> None:
        """Let ``members`` count, in the present generation."""
        self.roster = members
        with self.lock:
            self.sequence += 1
        for server in self.servers:
            server.link.give(self.server_orders(server.order.index, members))

    def server_orders(self, index: int, members: list[Member]) -> ServerOrders:
        return ServerOrders(
            incarnation=0,
            generation=self.generation,
            sequence=self.sequence,
            members=members,
            placement_version=1,
            blocks=[block for block in self.blocks if block.server == index],
            aggregation=self.spec.weighing,
            receivers=[self.address_for(index, other) for other in range(self.spec.servers) if other != index],
        )

    def address_for(self, index: int, other: int) -> ServerAddress:
        """Where server ``index`` finds another."""
        server, (host, port) = self.servers[other], self.addresses[other]
        key = keys.peer_key(bytes.fromhex(server.order.key), index, self.servers[index].order.instance)
        return ServerAddress(index=other, instance=server.order.instance, host=host, port=port, key=key)

    def add_worker(self, rank: int, instance: str) -> Process:
        link = MemoryWorkerLink(lambda message: self._on_say(rank, message))
        self.introduce(rank, instance, link)
        order = self._order("worker", rank, instance, self.emulate[rank])

        def save(model: Mapping[str, Vector]) -> None:
            self.models[rank] = {name: array.copy() for name, array in model.items()}

        process = Process(order, link, lambda: train(order, link, save, self.local))
        self.workers.append(process)
        return process

    def introduce(self, rank: int, instance: str, link: MemoryWorkerLink) -> None:
        """Tell a worker that is about to start where the servers are."""
        link.place(self.placement(rank, instance))

    def placement(self, rank: int, instance: str) -> Placement:
        return Placement(
            incarnation=0,
            version=1,
            blocks=self.blocks,
            servers=[
                ServerAddress(
                    index=server.order.index,
                    instance=server.order.instance,
                    host=host,
                    port=port,
                    key=keys.data_key(bytes.fromhex(server.order.key), rank, instance),
                )
                for server, (host, port) in zip(self.servers, self.addresses, strict=True)
            ],
        )

    def grant(self, rank: int, iteration: int) -> None:
        """Orders that let ``rank`` start ``iteration``, with its share of the schedule."""
        with self.lock:
            self.sequence += 1
            orders = self.orders(rank, iteration)
            link = self.worker(rank).link
        link.give(orders)

    def orders(self, rank: int, iteration: int) -> Orders:
        shares = self.schedule[min(iteration, len(self.schedule) - 1)]
        return Orders(
            incarnation=0,
            generation=self.generation,
            sequence=self.sequence,
            share=shares[rank],
            offset=sum(shares[:rank]),
            global_batch=max(1, sum(self.schedule[0])),
            origin_iteration=0,
            origin_position=0,
            share_from=iteration,
            share_until=iteration,
            watermark=iteration,
            placement_version=1,
            stop_at=len(self.schedule),
            evaluator=rank == self.roster[0].rank,
            decision_timeout_s=DEADLINE_S,
        )

    def worker(self, rank: int) -> Process:
        """The newest life of ``rank``."""
        return [process for process in self.workers if process.order.index == rank][-1]

    def reports(self, rank: int) -> list[IterationReport]:
        return self.worker(rank).link.heard(IterationReport)

    def evaluations(self) -> list[Evaluation]:
        return [e for worker in self.workers for e in worker.link.heard(Evaluation)]

    def finished(self) -> list[WorkerFinished]:
        return [message for worker in self.workers for message in worker.link.heard(WorkerFinished)]

    def server_reports(self) -> list[ServerReport]:
        return [report for server in self.servers for report in server.link.heard(ServerReport)]

    def _on_say(self, rank: int, message: Any) -> None:
        if isinstance(message, IterationReport) and self.grants(rank, message.iteration + 1):
            self.grant(rank, message.iteration + 1)

    def _server(self, index: int) -> Process:
        link = MemoryServerLink()
        order = self._order("server", index, f"s{index}", None)
        return Process(order, link, lambda: serve(order, link, host="127.0.0.1", report_s=0.05, local=self.local))

    def _order(self, role: Any, index: int, instance: str, emulate: Emulation | None) -> ProcessOrder:
        return ProcessOrder(
            job=1,
            role=role,
            index=index,
            instance=instance,
            slot=index,
            spec=self.spec,
            emulate=emulate,
            **certified(role, index, instance),
        )
