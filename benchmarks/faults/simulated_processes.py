"""A simulated machine: its workers and servers survive faults, and record what they sent and were granted.

They follow orders like real processes, under any policies; workers use ``WorkerMachine``. They compute nothing and have
no blocks.
"""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from benchmarks.faults.resilient_socket import ResilientSocket
from benchmarks.live.load_agent import report
from benchmarks.live.simulated_agent import Key, SimulatedAgent, credentials_of
from controlplane.protocol.codec import to_server, to_worker
from controlplane.protocol.messages import (
    BlocksHanded,
    Exchanged,
    ServerHello,
    WorkerHello,
)
from controlplane.protocol.orders import Orders, Placement, ProcessOrder, ServerOrders
from controlplane.protocol.worker import Step, WorkerMachine

STEP_S: Final = 0.05
"""Approximate duration of an iteration without waiting."""

PROGRESS_S: Final = STEP_S / 2
"""Interval of progress messages: longer than for real workers, since their number is not tested here."""

LOOK_S: Final = 0.02
TENSOR_SIZES: Final = [2**20] * 4
"""In elements; determines the number of blocks of 4 MiB."""

BYTES_PER_S: Final = 2e9
SLOW: Final = 4.0
SLOW_FOR: Final = 100
"""Iterations for which one server is slow, before the next one is."""


@dataclass(slots=True, kw_only=True)
class Records:
    """What all processes of a run record together."""

    over: bool = False
    """Whether to report no more."""
    reports: dict[tuple[int, str, int, int], int] = field(default_factory=dict)
    """Samples of every sent report, by job, instance, generation and iteration."""
    answered: dict[tuple[int, int], float] = field(default_factory=dict)
    """By job and rank: when the latest answered report was sent, on the monotonic clock."""
    answered_at: dict[tuple[int, int], float] = field(default_factory=dict)
    """By job and rank: when that answer came."""
    quorums: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """By job: the members of an iteration that servers received."""
    violations: list[str] = field(default_factory=list)


class SimulatedWorker:
    """One worker: reports iterations as its ``WorkerMachine`` allows, through every outage."""

    def __init__(self, base: str, order: ProcessOrder, records: Records, chance: random.Random) -> None:
        self._order, self._records, self._chance = order, records, chance
        self._placement: Placement | None = None
        self._changed = asyncio.Event()
        url = f"{base}/ws/worker/{order.job}/{order.index}"
        self.socket = ResilientSocket(url, credentials_of(order), to_worker, _worker_hello, self._take)
        self._worker = WorkerMachine(self.socket.say)
        self._samples = 0
        """The placement of the update in progress."""
        self._sent: dict[int, float] = {}

    async def run(self) -> None:
        """Run until the control plane ends it."""
        async with asyncio.TaskGroup() as group:
            training = group.create_task(self._train())
            await self.socket.run()
            training.cancel()

    def _take(self, reply: Orders | Placement) -> None:
        if isinstance(reply, Placement):
            self._placement = reply
            return
        before = self._worker.orders
        if not self._worker.receive(reply):
            return
        self.socket.observe_incarnation(reply.incarnation)
        if before is not None and _has_fallen(before, reply):
            self._records.violations.append(f"{self._order.instance}: the grant decreased from {before} to {reply}")
        self._note_answers(reply)
        self._changed.set()

    def _note_answers(self, orders: Orders) -> None:
        """Mark the reports that led to these orders: those before the iteration that the orders name."""
        who = (self._order.job, self._order.index)
        first_unknown = orders.ranges[0].first if orders.ranges else orders.share_until
        for iteration in [number for number in self._sent if number < first_unknown]:
            sent = self._sent.pop(iteration)
            if sent > self._records.answered.get(who, 0.0):
                self._records.answered[who], self._records.answered_at[who] = sent, time.monotonic()

    async def _train(self) -> None:
        worker = self._worker
        while True:
            step = worker.next(time.monotonic())
            if step is Step.PULL:
                worker.pulled(time.monotonic())
            elif step is Step.COMPUTE:
                await self._compute()
            elif step is Step.PUSH:
                await self._push()
            elif step is Step.FINISH:
                worker.finished(model_saved=worker.orders is not None and worker.orders.evaluator)
            else:
                await self._wait(None if worker.wake_at_s is None else worker.wake_at_s - time.monotonic())

    async def _compute(self) -> None:
        """Process all samples of the share, or those before the cut."""
        worker, attempt, task = self._worker, self._worker.attempt, self._worker.task
        assert task is not None
        took_s = STEP_S * self._chance.uniform(0.5, 1.5)
        ends, self._samples = time.monotonic() + took_s, task.share
        while (left_s := ends - time.monotonic()) > 0:
            done = max(1, int(task.share * (1 - left_s / took_s)))
            if worker.is_cut:
                self._samples = min(task.share, done)
                break
            if worker.progress_s is not None:
                worker.progressed(done)
                left_s = min(left_s, max(PROGRESS_S, worker.progress_s))
            await self._wait(left_s)
            if worker.attempt != attempt:
                return
        while self._records.over:
            await asyncio.sleep(STEP_S)
        if worker.attempt == attempt:
            worker.computed(self._samples)

    async def _push(self) -> None:
        """With backup workers, servers accept an update only once its worker is named."""
        worker, attempt, task = self._worker, self._worker.attempt, self._worker.task
        assert task is not None
        assert worker.orders is not None
        if worker.orders.announce:
            while (ranks := self._records.quorums.get(self._order.job, {}).get(worker.iteration)) is None:
                await self._wait(LOOK_S)
                if worker.attempt != attempt:
                    return
            if self._order.index not in ranks:
                worker.missed()
                return
        self._report(worker.iteration, task.position, worker.orders)
        worker.pushed()

    def _report(self, iteration: int, position: int, orders: Orders) -> None:
        samples = self._samples
        self._records.reports[self._order.job, self._order.instance, orders.generation, iteration] = samples
        self._sent[iteration] = time.monotonic()
        exchanges = self._exchanges(iteration)
        self.socket.say(
            lambda number: msgspec.structs.replace(
                report(number, iteration, orders), samples=samples, position=position, exchanges=exchanges
            )
        )

    def _exchanges(self, iteration: int) -> list[Exchanged]:
        """Exchanges with each server that has blocks. Servers are slow in turn, so that blocks move."""
        if self._placement is None:
            return []
        held = dict.fromkeys((server.index for server in self._placement.servers), 0)
        for block in self._placement.blocks:
            held[block.server] = held.get(block.server, 0) + block.bytes
        slow = sorted(held)[iteration // SLOW_FOR % len(held)] if held else None
        seconds = {server: size / BYTES_PER_S * (SLOW if server == slow else 1.0) for server, size in held.items()}
        return [
            Exchanged(server=server, bytes=size, push_s=seconds[server], pull_s=seconds[server])
            for server, size in sorted(held.items())
            if size
        ]

    async def _wait(self, seconds: float | None) -> None:
        """Wait for newer orders than at the last call, at most ``seconds``."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)
        self._changed.clear()


class SimulatedServer:
    """One server: it reports the updates in an iteration, and that its blocks were transferred."""

    def __init__(self, base: str, order: ProcessOrder, records: Records) -> None:
        self._job, self._records = order.job, records
        self._orders: ServerOrders | None = None
        self._handed = 0
        """The placement for which it has handed over."""
        url = f"{base}/ws/server/{order.job}/{order.index}"
        self.socket = ResilientSocket(url, credentials_of(order), to_server, _server_hello, self._take)

    def _take(self, orders: ServerOrders) -> None:
        before = self._orders
        if before is not None and orders.rank_in_time <= before.rank_in_time:
            return
        self.socket.observe_incarnation(orders.incarnation)
        self._orders = orders
        self._records.quorums.setdefault(self._job, {}).update(orders.quorums)
        if orders.sends and orders.next_placement > self._handed:
            self._handed = orders.next_placement
            self.socket.say(
                lambda number: BlocksHanded(
                    number=number, placement=orders.next_placement, blocks=sorted(orders.sends), seconds=STEP_S
                )
            )


class ResilientAgent(SimulatedAgent):
    """A machine of such processes."""

    def __init__(
        self, base: str, credential: str, *, slots: int, server_slots: int, records: Records, seed: int
    ) -> None:
        super().__init__(base, credential, slots=slots, server_slots=server_slots)
        self._records = records
        self._chance = random.Random(seed)
        self.sockets: dict[Key, ResilientSocket] = {}
        """The control sockets of its processes."""

    async def run_process(self, order: ProcessOrder) -> None:
        """Run until the control plane ends it."""
        key = (order.job, order.role, order.index, order.instance)
        if order.role == "worker":
            worker = SimulatedWorker(self._base, order, self._records, random.Random(self._chance.random()))
            self.sockets[key] = worker.socket
            await worker.run()
        else:
            server = SimulatedServer(self._base, order, self._records)
            self.sockets[key] = server.socket
            await server.socket.run()

    def stopped(self, key: Key) -> None:
        """The process has stopped: its socket can no longer be cut."""
        self.sockets.pop(key, None)


def _has_fallen(before: Orders, now: Orders) -> bool:
    """Whether a grant decreased within an incarnation and generation."""
    is_same_term = (now.incarnation, now.generation) == (before.incarnation, before.generation)
    return is_same_term and now.watermark < before.watermark


def _worker_hello(number: int) -> WorkerHello:
    return WorkerHello(number=number, parameter_count=sum(TENSOR_SIZES), sample_count=1437)


def _server_hello(number: int) -> ServerHello:
    return ServerHello(number=number, host="127.0.0.1", port=9, tensor_sizes=TENSOR_SIZES)
