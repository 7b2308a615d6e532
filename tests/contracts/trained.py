"""The real trainer, with a real server over loopback. All orders reach it on its own thread, as a script says."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

import torch
from msgspec.structs import replace

from controlplane.core.placing import cut_blocks
from controlplane.protocol.messages import ServerHello
from controlplane.protocol.orders import Block, Member, Orders, ServerOrders
from tests.contracts.script import Script, Stage, Where
from tests.workers.driver import Cluster, MemoryWorkerLink, job_spec
from workers.accelerator import gauge_of
from workers.trainer.evaluation import Evaluator
from workers.trainer.exchange import Exchange
from workers.trainer.local_steps import make_replica
from workers.trainer.loop import Trainer
from workers.trainer.micro_batch import Size
from workers.trainer.round import Round
from workers.transport.errors import Stopped
from workers.transport.frames import Header
from workers.transport.handshake import Peer
from workers.workloads.catalogue import load_workload
from workers.workloads.local import NOWHERE
from workers.workloads.shape import Replica, Samples, Update


class Asynchronous(Cluster):
    """One server that gives and takes at once; no worker is started."""

    incarnation = 0

    def start(self) -> None:
        hello = self.servers[0].link.await_said(ServerHello)[0]
        slices = cut_blocks(hello.tensor_sizes, block_bytes=1024)
        self.blocks = [Block(index=at, start=start, stop=stop, server=0) for at, (start, stop) in enumerate(slices)]
        self.addresses = [(hello.host, hello.port)]
        self.appoint(self.roster)

    def server_orders(self, index: int, members: list[Member]) -> ServerOrders:
        orders = super().server_orders(index, members)
        return replace(orders, incarnation=self.incarnation, apply="arrival", scale=1.0)


class ScriptedLink(MemoryWorkerLink):
    """A worker that would wait hears what comes next in the script, and is asked to end after the last."""

    def __init__(self, stage: Stage, cluster: Asynchronous) -> None:
        super().__init__(stage.take)
        self._stage, self._cluster = stage, cluster

    def await_orders(self, accept: Callable[[Orders], bool], timeout_s: float | None = None) -> Orders | None:
        while not self.stopping.is_set():
            newest = self.orders()
            if newest is not None and accept(newest):
                return newest
            coming = self._stage.next_at_rest()
            if coming is None:
                self.stop()
            else:
                self.receive(coming)
        return None

    def tell(self, where: Where, iteration: int, done: int = 1) -> None:
        """What the script says there."""
        for orders in self._stage.moments(where, iteration, done):
            self.receive(orders)
        self._follow()

    def receive(self, orders: Orders) -> None:
        """The server learns of a generation before the worker does."""
        self._follow()
        self.give(orders)

    def _follow(self) -> None:
        if (self._cluster.incarnation, self._cluster.generation) < self._stage.term:
            self._cluster.incarnation, self._cluster.generation = self._stage.term
            self._cluster.appoint(self._cluster.roster)


class ScriptedExchange(Exchange):
    """Lets the script continue before each exchange with the server."""

    script: ScriptedLink

    def pull(self, parameters: torch.Tensor, stamp: Header) -> Round:
        self.script.tell("pull", stamp.iteration)
        return super().pull(parameters, stamp)

    def push(self, gradient: torch.Tensor, pending: set[int], stamp: Header) -> Round:
        self.script.tell("push", stamp.iteration)
        return super().push(gradient, pending, stamp)


class ScriptedTrainer(Trainer):
    """Notes what it is about to compute."""

    stage: Stage

    def _compute(self, evaluator: Evaluator) -> None:
        assert self.worker.task is not None
        self.stage.started.append(self.worker.task)
        super()._compute(evaluator)


class Counting:
    """Takes a second for each sample, and lets the script continue after it."""

    def __init__(self, replica: Replica, stage: Stage, link: ScriptedLink) -> None:
        self._replica, self._stage, self._link = replica, stage, link
        self._begun = self._done = 0
        self.now_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)

    def update(self, samples: Samples) -> Update:
        update = self._replica.update(samples)
        if self._begun != len(self._stage.started):
            self._begun, self._done = len(self._stage.started), 0
        for _ in range(len(samples)):
            self._done += 1
            self.now_s += 1.0
            self._link.tell("compute", self._stage.started[-1].iteration, self._done)
        return update


def play(script: Script) -> Stage:
    """What it makes of ``script``."""
    stage = Stage(script)
    spec = job_spec(workers=1)
    with ExitStack() as stack:
        cluster = Asynchronous(spec, [[4]])
        stack.enter_context(cluster)
        cluster.start()
        link = ScriptedLink(stage, cluster)
        link.place(cluster.placement(0, "w0"))
        exchange = ScriptedExchange(Peer(0, "w0"), link.stopping, link.placement)
        exchange.script = link
        stack.enter_context(exchange)
        workload = load_workload(spec.workload, NOWHERE)
        counting = Counting(make_replica(workload, spec), stage, link)
        stack.enter_context(patch("workers.trainer.loop.make_replica", return_value=counting))
        one = Size(samples=1, whole=1, overhead=0.0)
        stack.enter_context(patch("workers.trainer.computing.choose", return_value=one))
        order = cluster._order("worker", 0, "w0", None)
        trainer = ScriptedTrainer(order, link, workload, exchange, lambda model: None, gauge_of(NOWHERE.device))
        trainer.stage, trainer.computing._now = stage, lambda: counting.now_s
        with suppress(Stopped):
            trainer.run()
    return stage
