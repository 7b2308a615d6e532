"""The attacks of ``bench hostile`` that need an enrolled machine: messages that no real agent or worker sends."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.live.load_agent import report
from benchmarks.live.simulated_agent import credentials_of, hello, send_heartbeats
from benchmarks.live.timing import open_socket
from benchmarks.security.context import AttackContext, AttackResult
from controlplane.protocol.codec import encode, to_agent
from controlplane.protocol.messages import (
    AgentHeartbeat,
    FolderApart,
    IterationReport,
    ProcessEnded,
    ProcessName,
    RestoreFailed,
    ServerHello,
    WorkerHello,
)
from controlplane.protocol.orders import AgentOrders, ProcessOrder

ANSWER_S: Final = 0.3
TOO_LARGE: Final = 2**63
NUL: Final = "a\0b"

Poison = tuple[msgspec.Struct, Mapping[str, Any]]
"""A message, and fields of it with what its type would not allow."""


def poison(context: AttackContext) -> AttackResult:
    """Values that a database or an engine cannot hold, from processes that are the attacker's own."""

    async def run() -> AttackResult:
        agent = MaliciousAgent(context)
        async with asyncio.timeout(10 * context.seconds):
            orders = await agent.ordered()
            worker = next(order for order in orders if order.role == "worker")
            server = next(order for order in orders if order.role == "server")
            agent.result.key = f"{worker.index}:{worker.instance}:{worker.key}"
            await agent.poison_as(server, _server_hello(), _POISON_OF_SERVERS)
            await agent.poison_as(worker, _worker_hello(), _POISON_OF_WORKERS)
            await agent.poison_as_agent(worker)
        return await agent.leave()

    return asyncio.run(run())


def ends_of_others(context: AttackContext) -> AttackResult:
    """Word that processes on other machines have ended."""

    async def run() -> AttackResult:
        agent = MaliciousAgent(context)
        await agent.connect()
        until = time.monotonic() + context.seconds
        while time.monotonic() < until:
            for victim in context.victims:
                await agent.say(ProcessEnded(number=1, process=victim, status=-9, tail="ended by another machine"))
                await agent.note_answer(f"the end of {victim.role} {victim.index}")
        return await agent.leave()

    return asyncio.run(run())


def offers(context: AttackContext) -> AttackResult:
    """More slots than any machine has."""

    async def run() -> AttackResult:
        agent = MaliciousAgent(context)
        for changes in _TOO_MUCH:
            await agent.connect(changes)
            await agent.note_answer(f"an offer of {next(iter(changes))}")
        return await agent.leave()

    return asyncio.run(run())


class MaliciousAgent:
    """An enrolled machine that sends arbitrary messages."""

    def __init__(self, context: AttackContext) -> None:
        self.context = context
        self.result = AttackResult(number=context.number, key=context.key)
        self._socket: ClientConnection | None = None
        self._beating: asyncio.Task[None] | None = None

    async def connect(self, changes: Mapping[str, Any] | None = None) -> None:
        """Say hello on a new connection, as any machine would but for ``changes``."""
        await self._end()
        headers = {"Authorization": f"Bearer {self.context.credential}"}
        self._socket = await open_socket(f"{self.context.sockets}/ws/agent", headers)
        await self.say(hello(1, 1), changes)
        self._beating = asyncio.create_task(send_heartbeats(self._socket, AgentHeartbeat(cpu=0.5, memory=0.5)))

    async def say(self, message: msgspec.Struct, changes: Mapping[str, Any] | None = None) -> None:
        """Send it under the next number."""
        assert self._socket is not None
        with suppress(ConnectionClosed):
            await self._socket.send(_frame(message, {"number": self.result.number} | dict(changes or {})))
        self.result.number += 1

    async def ordered(self) -> Sequence[ProcessOrder]:
        """What the control plane wants this machine to run, once that is a worker and a server."""
        await self.connect()
        assert self._socket is not None
        async for frame in self._socket:
            orders = to_agent.decode(frame if isinstance(frame, bytes) else frame.encode())
            if isinstance(orders, AgentOrders) and {order.role for order in orders.processes} == {"worker", "server"}:
                return orders.processes
        raise ConnectionError("the control plane ended the attacker's connection before it ordered anything")

    async def note_answer(self, what: str) -> None:
        """Count what comes back within a moment."""
        assert self._socket is not None
        self.result.answers[f"{what}: {await _answer(self._socket)}"] += 1

    async def poison_as(self, order: ProcessOrder, greeting: msgspec.Struct, poisons: Sequence[Poison]) -> None:
        """Say each of ``poisons`` on a separate connection, as that process."""
        headers, number = credentials_of(order), 0
        for message, changes in poisons:
            what = f"{type(message).__name__}.{next(iter(changes))}"
            try:
                socket = await open_socket(f"{self.context.sockets}/ws/{order.role}/{order.job}/{order.index}", headers)
            except (OSError, InvalidHandshake, ConnectionClosed) as error:
                self.result.answers[f"{what}: no connection ({type(error).__name__})"] += 1
                continue
            async with socket:
                with suppress(ConnectionClosed):
                    await socket.send(_frame(greeting, {"number": number + 1}))
                    await socket.send(_frame(message, {"number": number + 2} | dict(changes)))
                number += 2
                self.result.answers[f"{what}: {await _answer(socket)}"] += 1

    async def poison_as_agent(self, order: ProcessOrder) -> None:
        """Say how a process of this machine ended, in words that no database keeps."""
        process = ProcessName(job=order.job, role=order.role, index=order.index, instance=order.instance)
        for changes in ({"tail": NUL}, {"status": TOO_LARGE}, {"tail": "x" * 200_000}):
            await self.connect()
            await self.say(ProcessEnded(number=1, process=process, status=1), changes)
            await self.note_answer(f"ProcessEnded.{next(iter(changes))}")

    async def leave(self) -> AttackResult:
        """End the connection; the answers to all of it."""
        await self._end()
        return self.result

    async def _end(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        if self._socket is not None:
            await self._socket.close()


def _worker_hello() -> WorkerHello:
    return WorkerHello(number=1, parameter_count=650, sample_count=1437)


def _server_hello() -> ServerHello:
    return ServerHello(number=1, host="127.0.0.1", port=9, tensor_sizes=[640, 10])


_TOO_MUCH: Final[Sequence[Mapping[str, Any]]] = (
    {"server_slots": 2_000_000},
    {"server_slots": TOO_LARGE},
    {"slots": [{}] * 20_000},
    {"labels": {f"label-{at}": "x" * 1_000 for at in range(200)}},
    {"cpu_count": TOO_LARGE},
    {"version": NUL},
)
_REPORT: Final[IterationReport] = report(1, 0)
_POISON_OF_SERVERS: Final[Sequence[Poison]] = (
    (_server_hello(), {"tensor_sizes": [TOO_LARGE]}),
    (_server_hello(), {"host": NUL}),
    (FolderApart(number=1, reason=""), {"reason": NUL}),
    (RestoreFailed(number=1, iteration=0, reason=""), {"reason": NUL}),
    (RestoreFailed(number=1, iteration=0, reason=""), {"iteration": TOO_LARGE}),
)
_POISON_OF_WORKERS: Final[Sequence[Poison]] = (
    (_worker_hello(), {"sample_count": TOO_LARGE}),
    (_worker_hello(), {"skipped": [NUL]}),
    *((_REPORT, {field: TOO_LARGE}) for field in ("position", "samples", "iteration", "generation")),
    *((_REPORT, {field: float("inf")}) for field in ("loss", "compute_s", "waiting_s")),
    (_REPORT, {"loss": float("nan")}),
    (_REPORT, {"push_s": 1e300}),
    (_REPORT, {"spoilt": NUL}),
)


def _frame(message: msgspec.Struct, changes: Mapping[str, Any]) -> bytes:
    """The message with fields changed to what its type would not allow."""
    fields: dict[str, Any] = msgspec.msgpack.decode(encode(message))
    return msgspec.msgpack.encode(fields | dict(changes))


async def _answer(socket: ClientConnection) -> str:
    """The first word of refusal that comes within a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_S):
            try:
                while True:
                    frame = await socket.recv(decode=False)
                    said = msgspec.msgpack.decode(frame)
                    if said.get("type") == "rejection":
                        return f"refused as {said.get('code')}"
            except ConnectionClosed:
                return f"closed with {socket.close_code}"
    return "no answer"
