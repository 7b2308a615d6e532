"""Simulated machines, workers and servers that live through faults, and remember all that they said and were told."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from controlplane.protocol.codec import encode, to_agent, to_server, to_worker
from controlplane.protocol.messages import (
    AgentHeartbeat,
    ProcessEnded,
    ProcessName,
    ServerHello,
    WorkerHello,
)
from controlplane.protocol.orders import AgentOrders, Orders, Placement, ProcessOrder, Role, ServerOrders
from controlplane.runtime.bench.clients import open_socket
from controlplane.runtime.bench.machines import TENSOR_SIZES, hello, report
from controlplane.runtime.bench.voices import BEAT_S, Voice

STEP_S: Final = 0.03
"""About how long an iteration takes besides waiting."""

Key = tuple[int, Role, int, str]
"""Job, role, index and instance."""


@dataclass(slots=True, kw_only=True)
class Memory:
    """What all trainers of a run remember together."""

    over: bool = False
    """Whether to report no more."""
    reports: dict[tuple[int, str, int, int], int] = field(default_factory=dict)
    """Samples of every report that was said, by job, instance, generation and iteration."""
    answered: dict[tuple[int, int], float] = field(default_factory=dict)
    """By job and rank: when the latest report was sent that has been answered, on the monotonic clock."""
    answered_at: dict[tuple[int, int], float] = field(default_factory=dict)
    """By job and rank: when that answer came."""
    disobeyed: list[str] = field(default_factory=list)


class Trainer:
    """One worker: reports iterations as its orders allow, through every outage."""

    def __init__(self, base: str, order: ProcessOrder, memory: Memory, chance: random.Random) -> None:
        self._order, self._memory, self._chance = order, memory, chance
        self._orders: Orders | None = None
        self._news = asyncio.Event()
        headers = {"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance}
        self.voice = Voice(f"{base}/ws/worker/{order.job}/{order.index}", headers, to_worker, _worker_hello, self._take)
        self._sent: dict[int, float] = {}

    async def run(self) -> None:
        """Until the control plane ends it."""
        async with asyncio.TaskGroup() as group:
            training = group.create_task(self._train())
            await self.voice.run()
            training.cancel()

    def _take(self, reply: Orders | Placement) -> None:
        if not isinstance(reply, Orders):
            return
        before = self._orders
        if before is not None and reply.rank_in_time <= before.rank_in_time:
            return
        if before is not None and reply.incarnation > before.incarnation:
            self.voice.say_again()
        elif before is not None and reply.generation == before.generation and reply.watermark < before.watermark:
            self._memory.disobeyed.append(f"{self._order.instance}: leave fell from {before} to {reply}")
        self._orders = reply
        self._note_answers(reply)
        self._news.set()

    def _note_answers(self, orders: Orders) -> None:
        """Which of the reports led to these orders: those before the iteration that they speak of."""
        who = (self._order.job, self._order.index)
        for iteration in [number for number in self._sent if number < orders.share_until]:
            sent = self._sent.pop(iteration)
            if sent > self._memory.answered.get(who, 0.0):
                self._memory.answered[who], self._memory.answered_at[who] = sent, time.monotonic()

    async def _train(self) -> None:
        iteration = 0
        while True:
            orders = await self._leave_for(iteration)
            await asyncio.sleep(STEP_S * self._chance.uniform(0.5, 1.5))
            while self._memory.over:
                await asyncio.sleep(STEP_S)
            self._report(iteration, orders)
            iteration += 1

    async def _leave_for(self, iteration: int) -> Orders:
        """Orders by which the iteration may start; its share is awaited as long as they say, then the last holds."""
        deadline = None
        while True:
            orders = self._orders
            self._news.clear()
            if orders is not None and orders.watermark >= iteration:
                deadline = deadline or time.monotonic() + orders.decision_timeout_s
                if orders.share_until >= iteration or time.monotonic() >= deadline:
                    return orders
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                pass

    def _report(self, iteration: int, orders: Orders) -> None:
        key = (self._order.job, self._order.instance, orders.generation, iteration)
        self._memory.reports[key] = orders.share
        self._sent[iteration] = time.monotonic()
        self.voice.say(lambda number: report(number, iteration, orders))


class Machine:
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
            headers = {"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance}
            url = f"{self._base}/ws/server/{order.job}/{order.index}"
            self.voices[key] = _server_voice(url, headers)
            await self.voices[key].run()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        """A trainer ends when it is told to; whatever else ends it is a finding."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._memory.disobeyed.append(f"a trainer failed: {error!r}")

    async def _tell_end(self, socket: ClientConnection, key: Key) -> None:
        self._number += 1
        await socket.send(encode(ProcessEnded(number=self._number, process=_name(key), status=0)))


def _server_voice(url: str, headers: dict[str, str]) -> Voice:
    last: list[ServerOrders] = []

    def take(reply: ServerOrders) -> None:
        if last and reply.rank_in_time <= last[-1].rank_in_time:
            return
        if last and reply.incarnation > last[-1].incarnation:
            voice.say_again()
        last[:] = [reply]

    voice = Voice(url, headers, to_server, _server_hello, take)
    return voice


def _worker_hello(number: int) -> WorkerHello:
    return WorkerHello(number=number, parameter_count=sum(TENSOR_SIZES), sample_count=1437)


def _server_hello(number: int) -> ServerHello:
    return ServerHello(number=number, host="127.0.0.1", port=9, tensor_sizes=TENSOR_SIZES)


def _name(key: Key) -> ProcessName:
    job, role, index, instance = key
    return ProcessName(job=job, role=role, index=index, instance=instance)


async def _beat(socket: ClientConnection) -> None:
    while True:
        await asyncio.sleep(BEAT_S)
        await socket.send(encode(AgentHeartbeat(cpu=0.5, memory=0.5)))
