"""A simulated machine with simulated processes, over real websockets with real credentials.

It does what an agent, its servers and its workers do on their control sockets, and computes nothing: a worker's next
report follows as soon as it has leave and a share for the next iteration.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

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
)
from controlplane.protocol.orders import AgentOrders, Orders, ProcessOrder, Role
from controlplane.runtime.bench.clients import Timing, open_socket

TENSOR_SIZES: Final = [640, 10]
BEAT_S: Final = 1.0


class Machine:
    """One agent that offers slots, and runs whatever it is ordered to."""

    def __init__(self, base: str, credential: str, *, slots: int, timing: Timing) -> None:
        self._base, self._timing, self._slots = base, timing, slots
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._running: dict[tuple[Role, int], asyncio.Task[None]] = {}
        self._names: dict[tuple[Role, int], ProcessName] = {}
        self._said = 1
        self.reports_sent: dict[int, int] = {}
        """How many reports each worker has sent so far."""

    async def run(self) -> None:
        """Until every process that was started has been ordered to end, and that is known to have happened."""
        socket = await open_socket(f"{self._base}/ws/agent", self._headers)
        async with socket:
            await socket.send(encode(self._hello()))
            beating = asyncio.create_task(_beat(socket, encode(AgentHeartbeat(cpu=0.5, memory=0.5))))
            try:
                async for frame in socket:
                    orders = to_agent.decode(frame if isinstance(frame, bytes) else frame.encode())
                    if isinstance(orders, AgentOrders) and await self._follow(socket, orders):
                        return
            finally:
                beating.cancel()

    def _hello(self) -> AgentHello:
        return AgentHello(
            number=1,
            name="bench",
            version="bench",
            host="127.0.0.1",
            slots=[SlotOffer()] * self._slots,
            server_slots=1,
            labels={},
            cpu_count=1,
            memory_bytes=2**30,
        )

    async def _follow(self, socket: ClientConnection, orders: AgentOrders) -> bool:
        """Start and end processes as ordered; whether all have ended, and the other side knows."""
        ordered = {(order.role, order.index): order for order in orders.processes}
        for key in ordered.keys() - self._running.keys():
            order = ordered[key]
            self._names[key] = ProcessName(job=order.job, role=order.role, index=order.index, instance=order.instance)
            self._running[key] = asyncio.create_task(self._process(order))
        for key in sorted(self._running.keys() - ordered.keys()):
            self._running.pop(key).cancel()
            await self._tell_end(socket, key)
        return self._said > 1 and not self._running and orders.durable >= self._said

    async def _tell_end(self, socket: ClientConnection, key: tuple[Role, int]) -> None:
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
        async for iteration in train(socket, self._timing):
            self.reports_sent[order.index] = iteration + 1
        async for _ in socket:
            pass


async def train(socket: ClientConnection, timing: Timing) -> AsyncIterator[int]:
    """Report iterations as fast as orders come, until time is over; each when its report is sent.

    Whoever stops first leaves the others waiting for orders that will not come: an iteration is complete with all.
    """
    await socket.send(encode(WorkerHello(number=1, parameter_count=650, sample_count=1437)))
    iteration, orders = 0, await _orders_for(socket, 0)
    while not timing.over:
        sent = time.perf_counter()
        await socket.send(encode(report(iteration + 2, iteration, orders)))
        yield iteration
        iteration += 1
        orders = await _orders_for(socket, iteration)
        timing.note(sent)


async def _orders_for(socket: ClientConnection, iteration: int) -> Orders:
    while True:
        orders = to_worker.decode(await socket.recv(decode=False))
        if isinstance(orders, Orders) and orders.watermark >= iteration and orders.share_until >= iteration:
            return orders


async def serve(socket: ClientConnection) -> None:
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


async def _beat(socket: ClientConnection, frame: bytes) -> None:
    with suppress(ConnectionClosed):
        while True:
            await asyncio.sleep(BEAT_S)
            await socket.send(frame)
