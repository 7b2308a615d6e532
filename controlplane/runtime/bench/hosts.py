"""A simulated machine that lives through faults: its agent, and the trainers and servers that it is told to run."""

import asyncio
import random

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from controlplane.protocol.codec import encode, to_agent
from controlplane.protocol.messages import AgentHeartbeat, ProcessEnded, ProcessName
from controlplane.protocol.orders import AgentOrders, ProcessOrder, Role
from controlplane.runtime.bench.clients import open_socket
from controlplane.runtime.bench.machines import hello
from controlplane.runtime.bench.trainers import Memory, Server, Trainer
from controlplane.runtime.bench.voices import BEAT_S, Voice

Key = tuple[int, Role, int, str]
"""Job, role, index and instance."""


class Host:
    """One agent: it is told what to run again and again, and runs it; what it was told of ends once."""

    def __init__(self, base: str, credential: str, *, slots: int, server_slots: int, memory: Memory, seed: int) -> None:
        self._base, self._memory, self._slots, self._server_slots = base, memory, slots, server_slots
        self._headers = {"Authorization": f"Bearer {credential}"}
        self._chance = random.Random(seed)
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._ended: list[Key] = []
        self._number = 1
        self._socket: ClientConnection | None = None
        self.voices: dict[Key, Voice] = {}
        self.may_connect = asyncio.Event()
        """Cleared while its link is cut."""
        self.may_connect.set()

    def cut(self) -> None:
        """Break the agent's own connection."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def run(self) -> None:
        """Stay connected until cancelled; processes end with it."""
        try:
            while True:
                await self.may_connect.wait()
                try:
                    async with asyncio.timeout(5.0):
                        socket = await open_socket(f"{self._base}/ws/agent", self._headers)
                    await self._converse(socket)
                except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed, EOFError):
                    pass
                await asyncio.sleep(0.2)
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _converse(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number += 1
        running = [_name(key) for key in [*self._tasks, *self._ended]]
        await socket.send(encode(hello(self._slots, self._server_slots, number=self._number, running=running)))
        for key in list(self._ended):
            await self._tell_end(socket, key)
        beating = asyncio.create_task(_beat(socket))
        try:
            async for frame in socket:
                orders = to_agent.decode(frame if isinstance(frame, bytes) else frame.encode())
                if isinstance(orders, AgentOrders):
                    await self._follow(socket, orders)
        finally:
            self._socket = None
            beating.cancel()

    async def _follow(self, socket: ClientConnection, orders: AgentOrders) -> None:
        wanted = {(order.job, order.role, order.index, order.instance): order for order in orders.processes}
        for key in wanted.keys() - self._tasks.keys() - set(self._ended):
            self._tasks[key] = asyncio.create_task(self._play(key, wanted[key]))
            self._tasks[key].add_done_callback(self._note_end)
        for key in sorted(self._tasks.keys() - wanted.keys()):
            self._tasks.pop(key).cancel()
            self.voices.pop(key, None)
            self._ended.append(key)
            await self._tell_end(socket, key)

    async def _play(self, key: Key, order: ProcessOrder) -> None:
        if order.role == "worker":
            trainer = Trainer(self._base, order, self._memory, random.Random(self._chance.random()))
            self.voices[key] = trainer.voice
            await trainer.run()
        else:
            server = Server(self._base, order, self._memory)
            self.voices[key] = server.voice
            await server.voice.run()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """A trainer ends when it is told to; whatever else ends it is a finding."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._memory.disobeyed.append(f"a trainer failed: {error!r}")

    async def _tell_end(self, socket: ClientConnection, key: Key) -> None:
        self._number += 1
        await socket.send(encode(ProcessEnded(number=self._number, process=_name(key), status=0)))


def _name(key: Key) -> ProcessName:
    job, role, index, instance = key
    return ProcessName(job=job, role=role, index=index, instance=instance)


async def _beat(socket: ClientConnection) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        await socket.send(encode(AgentHeartbeat(cpu=0.5, memory=0.5)))
