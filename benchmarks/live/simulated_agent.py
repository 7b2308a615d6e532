"""A simulated agent over a real websocket with real credentials; what its processes do is up to subclasses."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.live.timing import open_socket
from controlplane.protocol.codec import encode, to_agent
from controlplane.protocol.messages import AgentHeartbeat, AgentHello, ProcessEnded, ProcessName, SlotOffer
from controlplane.protocol.orders import AgentOrders, ProcessOrder, Role
from workers.control.links import AFTER_MESSAGE_S
from workers.control.socket import HEARTBEAT_S

CONNECT_S: Final = 5.0
RECONNECT_S: Final = 0.2

Key = tuple[int, Role, int, str]
"""Job, role, index and instance of a process."""


class SimulatedAgent(ABC):
    """Offers slots, runs ordered processes, and reports ended ones again on each connection."""

    def __init__(self, base: str, credential: str, *, slots: int, server_slots: int = 1) -> None:
        self._base, self._slots, self._server_slots = base, slots, server_slots
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._ended: list[Key] = []
        self._number = 0
        """Of the last message."""
        self._socket: ClientConnection | None = None
        self.failures: list[str] = []
        """Processes that ended by an error instead of an order."""
        self.may_connect = asyncio.Event()
        """Cleared while its link is cut."""
        self.may_connect.set()

    @abstractmethod
    async def run_process(self, order: ProcessOrder) -> None:
        """Do what a process of that role does, until cancelled."""

    async def run(self, *, until_over: bool = False) -> None:
        """Connect, and reconnect as an agent does, until cancelled; its processes end with it.

        ``until_over``: or until all its processes were ordered to end, and the control plane knows that they have.
        """
        try:
            while True:
                await self.may_connect.wait()
                with suppress(OSError, TimeoutError, InvalidHandshake, ConnectionClosed, EOFError):
                    async with asyncio.timeout(CONNECT_S):
                        socket = await open_socket(f"{self._base}/ws/agent", self._headers)
                    if await self._converse(socket, until_over=until_over):
                        return
                await asyncio.sleep(RECONNECT_S)
        finally:
            self._cancel_all()

    def cut(self) -> None:
        """Break the agent's own connection."""
        if self._socket is not None:
            self._socket.transport.abort()

    def stopped(self, key: Key) -> None:  # noqa: B027 - most keep nothing
        """A process was ordered to end; for subclasses that keep something of it."""

    def _cancel_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    async def _converse(self, socket: ClientConnection, *, until_over: bool) -> bool:
        """Until the connection ends, or with ``until_over`` all processes have; whether they have."""
        async with socket:
            self._socket = socket
            self._number += 1
            running = [_name(key) for key in [*self._tasks, *self._ended]]
            await socket.send(encode(hello(self._slots, self._server_slots, number=self._number, running=running)))
            for key in list(self._ended):
                await self._report_end(socket, key)
            beating = asyncio.create_task(send_heartbeats(socket, AgentHeartbeat(cpu=0.5, memory=0.5)))
            try:
                async for frame in socket:
                    orders = to_agent.decode(frame if isinstance(frame, bytes) else frame.encode())
                    if isinstance(orders, AgentOrders) and await self._follow(socket, orders) and until_over:
                        return True
                return False
            finally:
                self._socket = None
                beating.cancel()

    async def _follow(self, socket: ClientConnection, orders: AgentOrders) -> bool:
        """Start and end processes as ordered; whether all have ended, and the other side knows."""
        ordered = {(order.job, order.role, order.index, order.instance): order for order in orders.processes}
        for key in ordered.keys() - self._tasks.keys() - set(self._ended):
            self._tasks[key] = asyncio.create_task(self.run_process(ordered[key]))
            self._tasks[key].add_done_callback(self._note_failure)
        for key in sorted(self._tasks.keys() - ordered.keys()):
            self._tasks.pop(key).cancel()
            self.stopped(key)
            self._ended.append(key)
            await self._report_end(socket, key)
        return bool(self._ended) and not self._tasks and orders.durable >= self._number

    async def _report_end(self, socket: ClientConnection, key: Key) -> None:
        self._number += 1
        await socket.send(encode(ProcessEnded(number=self._number, process=_name(key), status=0)))

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(f"a simulated process failed: {error!r}")


@dataclass(slots=True)
class LastMessage:
    """When a process last sent a message, which counts as a heartbeat."""

    sent_s: float = float("-inf")


async def send_heartbeats(socket: ClientConnection, heartbeat: msgspec.Struct, last: LastMessage | None = None) -> None:
    """As real processes send them, as long as the connection lasts."""
    frame, last = encode(heartbeat), last or LastMessage()
    due_s = time.monotonic() + HEARTBEAT_S
    with suppress(ConnectionClosed):
        while True:
            await asyncio.sleep(due_s - time.monotonic())
            if time.monotonic() < last.sent_s + AFTER_MESSAGE_S:
                due_s = last.sent_s + AFTER_MESSAGE_S
                continue
            await socket.send(frame)
            due_s = time.monotonic() + HEARTBEAT_S


def credentials_of(order: ProcessOrder) -> dict[str, str]:
    """The headers with which a process opens its control socket."""
    return {"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance}


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


def _name(key: Key) -> ProcessName:
    job, role, index, instance = key
    return ProcessName(job=job, role=role, index=index, instance=instance)
