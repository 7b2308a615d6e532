"""A simulated machine with simulated processes, over real websockets with real credentials.

It does what an agent, its servers and its workers do on their control sockets, and computes nothing: when a worker's
next report follows the orders for it is the affair of whoever makes the machine (``Pace``). A worker waits for orders
after each report, so that the batching policy has to decide after each iteration.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from controlplane.protocol.codec import encode, to_agent, to_worker
from controlplane.protocol.messages import (
    AgentHeartbeat,
    AgentHello,
    Heartbeat,
    IterationReport,
    ProcessEnded,
    ProcessName,
    ServerHello,
    SlotOffer,
    WorkerHello,
    WorkerMessage,
)
from controlplane.protocol.orders import AgentOrders, Durable, Orders, ProcessOrder, Role
from controlplane.protocol.outbox import Outbox
from controlplane.protocol.worker import Step, WorkerMachine
from controlplane.runtime.bench.clients import open_socket

TENSOR_SIZES: Final = [640, 10]
BEAT_S: Final = 1.0
NO_TIME_S: Final = 0.0
"""The workers' clock stands still: a share is awaited for as long as it takes."""


Key = tuple[int, Role, int]
"""Job, role and index of a process."""


class Pace(Protocol):
    """When workers report."""

    @property
    def over(self) -> bool:
        """Whether to report no more."""

    async def before_report(self, job: int, rank: int, iteration: int) -> None:
        """Return when that report is to be sent, which then happens at once."""

    def answered(self, job: int, rank: int, iteration: int) -> None:
        """The orders that follow from the report of that iteration have just come."""


class Machine:
    """One agent that offers slots, and runs whatever it is ordered to."""

    def __init__(self, base: str, credential: str, *, slots: int, pace: Pace, server_slots: int = 1) -> None:
        self._base, self._pace, self._slots, self._server_slots = base, pace, slots, server_slots
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._names: dict[Key, ProcessName] = {}
        self._said = 1
        self.reports_sent: dict[tuple[int, int], int] = {}
        """How many reports each worker has sent so far, by job and rank."""

    async def run(self) -> None:
        """Until every process that was started has been ordered to end, and that is known to have happened."""
        socket = await open_socket(f"{self._base}/ws/agent", self._headers)
        async with socket:
            await socket.send(encode(hello(self._slots, self._server_slots)))
            beating = asyncio.create_task(_beat(socket, encode(AgentHeartbeat(cpu=0.5, memory=0.5))))
            try:
                async for frame in socket:
                    orders = to_agent.decode(frame if isinstance(frame, bytes) else frame.encode())
                    if isinstance(orders, AgentOrders) and await self._follow(socket, orders):
                        return
            finally:
                beating.cancel()

    async def _follow(self, socket: ClientConnection, orders: AgentOrders) -> bool:
        """Start and end processes as ordered; whether all have ended, and the other side knows."""
        ordered = {(order.job, order.role, order.index): order for order in orders.processes}
        for key in ordered.keys() - self._running.keys():
            order = ordered[key]
            self._names[key] = ProcessName(job=order.job, role=order.role, index=order.index, instance=order.instance)
            self._running[key] = asyncio.create_task(self._process(order))
        for key in sorted(self._running.keys() - ordered.keys()):
            self._running.pop(key).cancel()
            await self._tell_end(socket, key)
        return self._said > 1 and not self._running and orders.durable >= self._said

    async def _tell_end(self, socket: ClientConnection, key: Key) -> None:
        self._said += 1
        await socket.send(encode(ProcessEnded(number=self._said, process=self._names[key], status=0)))

    async def _process(self, order: ProcessOrder) -> None:
        headers = {"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance}
        socket = await open_socket(f"{self._base}/ws/{order.role}/{order.job}/{order.index}", headers)
        async with socket:
            beating = asyncio.create_task(_beat(socket, encode(Heartbeat(cpu=0.5, memory=0.5))))
            try:
                with suppress(ConnectionClosed):
                    if order.role == "server":
                        await serve(socket)
                    else:
                        await self._train(socket, order)
            finally:
                beating.cancel()

    async def _train(self, socket: ClientConnection, order: ProcessOrder) -> None:
        """Report iterations until it is over, then wait for the end.

        Whoever stops first leaves the others waiting for orders that will not come: an iteration is complete with all.
        """
        pace, job, rank = self._pace, order.job, order.index
        outbox: Outbox[WorkerMessage] = Outbox()
        worker, reported = WorkerMachine(outbox.say), False
        outbox.say(lambda number: WorkerHello(number=number, parameter_count=650, sample_count=1437))
        while True:
            step = Step.WAIT if worker.orders is None else worker.next(NO_TIME_S)
            if step is Step.PULL:
                worker.pulled(NO_TIME_S)
            elif step is Step.COMPUTE:
                assert worker.task is not None
                if reported:
                    pace.answered(job, rank, worker.iteration - 1)
                if pace.over:
                    break
                await pace.before_report(job, rank, worker.iteration)
                worker.computed(worker.task.share)
            elif step is Step.PUSH:
                outbox.say(partial(report, iteration=worker.iteration, orders=worker.orders))
                worker.pushed()
                reported = True
                self.reports_sent[job, rank] = worker.iteration
            elif step is Step.FINISH:
                worker.finished(model_saved=worker.orders is not None and worker.orders.evaluator)
            else:
                await _send(socket, outbox)
                await _hear(socket, worker, outbox)
        async for _ in socket:
            pass


async def _send(socket: ClientConnection, outbox: Outbox[WorkerMessage]) -> None:
    while (message := outbox.take()) is not None:
        await socket.send(encode(message))


async def _hear(socket: ClientConnection, worker: WorkerMachine, outbox: Outbox[WorkerMessage]) -> None:
    reply = to_worker.decode(await socket.recv(decode=False))
    if isinstance(reply, Orders):
        worker.hear(reply)
    elif isinstance(reply, Durable):
        outbox.acknowledge(reply.number)


async def serve(socket: ClientConnection) -> None:
    """A server that says hello and stays."""
    await socket.send(encode(ServerHello(number=1, host="127.0.0.1", port=9, tensor_sizes=TENSOR_SIZES)))
    async for _ in socket:
        pass


def hello(slots: int, server_slots: int, *, number: int = 1, running: Sequence[ProcessName] = ()) -> AgentHello:
    """An agent's, with that many slots."""
    return AgentHello(
        number=number,
        name="bench",
        version="bench",
        host="127.0.0.1",
        slots=[SlotOffer()] * slots,
        server_slots=server_slots,
        labels={},
        cpu_count=1,
        memory_bytes=2**30,
        running=list(running),
    )


def report(number: int, iteration: int, orders: Orders | None = None) -> IterationReport:
    """A report as an idle machine would send it."""
    return IterationReport(
        number=number,
        generation=orders.generation if orders else 1,
        iteration=iteration,
        samples=orders.share if orders else 64,
        position=iteration * (orders.global_batch if orders else 64),
        loss=0.5,
        compute_s=0.010 + 0.001 * (number % 7),
        push_s=0.002,
        pull_s=0.001,
        waiting_s=0.003,
        coordination_s=0.0005,
        cpu=0.5,
        memory=0.5,
    )


async def _beat(socket: ClientConnection, frame: bytes) -> None:
    with suppress(ConnectionClosed):
        while True:
            await asyncio.sleep(BEAT_S)
            await socket.send(frame)
