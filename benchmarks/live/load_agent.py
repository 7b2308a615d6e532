"""Simulated workers and servers that put load on a control plane, over real websockets with real credentials.

They do what real ones do on their control sockets, and compute nothing: a worker's ``Pace`` decides when its next
report follows the orders. A worker waits for orders after each report, so that the batching policy has to decide after
each iteration.
"""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidMessage

from benchmarks.live.relaying import LocalSocket, RunningRelay
from benchmarks.live.simulated_agent import LastMessage, SimulatedAgent, credentials_of, send_heartbeats
from benchmarks.live.timing import open_socket
from controlplane.protocol.codec import encode, to_worker
from controlplane.protocol.messages import Heartbeat, IterationReport, ServerHello, WorkerHello, WorkerMessage
from controlplane.protocol.orders import Durable, Orders, ProcessOrder
from controlplane.protocol.outbox import Outbox
from controlplane.protocol.worker import Step, WorkerMachine

TENSOR_SIZES: Final = [640, 10]
AGAIN_S: Final = 1.0
NO_TIME_S: Final = 0.0
"""The workers' clock does not advance, so that waiting for a share never times out."""


Socket = ClientConnection | LocalSocket


class Pace(Protocol):
    """When workers report."""

    @property
    def over(self) -> bool:
        """Whether to report no more."""

    async def before_report(self, job: int, rank: int, iteration: int) -> None:
        """Return when that report should be sent; it is then sent immediately."""

    def answered(self, job: int, rank: int, iteration: int) -> None:
        """The orders that follow from the report of that iteration have arrived."""


class LoadAgent(SimulatedAgent):
    """One agent with workers that report at their ``Pace``."""

    def __init__(
        self,
        base: str,
        credential: str,
        *,
        slots: int,
        pace: Pace,
        server_slots: int = 1,
        relay: RunningRelay | None = None,
    ) -> None:
        super().__init__(base, credential, slots=slots, server_slots=server_slots)
        self._pace = pace
        self.relay = relay
        """Through which its processes speak, if not by websockets of their own."""
        self.reports_sent: dict[tuple[int, int], int] = {}
        """How many reports each worker has sent so far, by job and rank."""
        self.frames_received = 0
        """By all workers."""

    async def run_process(self, order: ProcessOrder) -> None:
        """A worker that trains or a server that is there."""
        socket, last = await self._connected(order), LastMessage()
        async with socket:
            beating = asyncio.create_task(
                socket.send_beats() if isinstance(socket, LocalSocket) else send_heartbeats(socket, Heartbeat(), last)
            )
            try:
                with suppress(ConnectionClosed):
                    if order.role == "server":
                        await serve(socket)
                    else:
                        await self._train(socket, order, last)
            finally:
                beating.cancel()

    async def _connected(self, order: ProcessOrder) -> Socket:
        """Its connection. Like a real process it tries again if the control plane is too busy to answer in time."""
        if self.relay is not None:
            return await LocalSocket.open(self.relay.path, order)
        while True:
            with suppress(InvalidMessage, ConnectionError, TimeoutError):
                url = f"{self._base}/ws/{order.role}/{order.job}/{order.index}"
                return await open_socket(url, credentials_of(order))
            await asyncio.sleep(AGAIN_S)

    async def _train(self, socket: Socket, order: ProcessOrder, last: LastMessage) -> None:
        """Report iterations until it is over, then wait for the end.

        If one stops first, the others wait for orders that never come: an iteration needs all reports.
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
                await _send(socket, outbox, last)
                await _hear(socket, worker, outbox)
                self.frames_received += 1
        async for _ in socket:
            pass


async def _send(socket: Socket, outbox: Outbox[WorkerMessage], last: LastMessage) -> None:
    while (message := outbox.take()) is not None:
        await socket.send(encode(message))
        last.sent_s = time.monotonic()


async def _hear(socket: Socket, worker: WorkerMachine, outbox: Outbox[WorkerMessage]) -> None:
    reply = to_worker.decode(await socket.recv(decode=False))
    if isinstance(reply, Orders):
        worker.receive(reply)
    elif isinstance(reply, Durable):
        outbox.acknowledge(reply.number)


async def serve(socket: Socket) -> None:
    """A server that says hello and stays."""
    await socket.send(encode(ServerHello(number=1, host="127.0.0.1", port=9, tensor_sizes=TENSOR_SIZES)))
    async for _ in socket:
        pass


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
