"""Simulated workers and servers that live through faults, and remember all that they said and were told.

They do what orders ask of real ones, whatever the job's policies are: hold, skip, stop short, wait until they are
named, hand blocks over. Nothing is computed, and no block exists.
"""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from controlplane.protocol.codec import to_server, to_worker
from controlplane.protocol.messages import (
    BlocksHanded,
    Computed,
    Exchanged,
    Held,
    ProgressReport,
    ServerHello,
    WorkerHello,
)
from controlplane.protocol.orders import Orders, Placement, ProcessOrder, ServerOrders
from controlplane.runtime.bench.machines import report
from controlplane.runtime.bench.voices import Voice

STEP_S: Final = 0.05
"""About how long an iteration takes besides waiting."""

WORDS_S: Final = STEP_S / 2
"""Between two words of progress: less often than real workers, since their number is not what is tried here."""

LOOK_S: Final = 0.02
TENSOR_SIZES: Final = [2**20] * 4
"""In elements: so many blocks of 4 MiB."""

BYTES_PER_S: Final = 2e9
SLOW: Final = 4.0
SLOW_FOR: Final = 100
"""Iterations for which one server is slow, before the next one is."""


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
    quorums: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """By job: the ranks that servers were told make an iteration."""
    disobeyed: list[str] = field(default_factory=list)


class _Skipped(Exception):
    """The iteration is not owed any more."""


class Trainer:
    """One worker: reports iterations as its orders allow, through every outage."""

    def __init__(self, base: str, order: ProcessOrder, memory: Memory, chance: random.Random) -> None:
        self._order, self._memory, self._chance = order, memory, chance
        self._heard: list[Orders] = []
        self._placement: Placement | None = None
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
        if isinstance(reply, Placement):
            self._placement = reply
            return
        before = self._heard[-1] if self._heard else None
        if before is not None and reply.rank_in_time <= before.rank_in_time:
            return
        if before is not None and reply.incarnation > before.incarnation:
            self.voice.say_again()
        elif before is not None and reply.generation == before.generation and reply.watermark < before.watermark:
            self._memory.disobeyed.append(f"{self._order.instance}: leave fell from {before} to {reply}")
        self._heard.append(reply)
        self._note_answers(reply)
        self._news.set()

    def _note_answers(self, orders: Orders) -> None:
        """Which of the reports led to these orders: those before the iteration that they speak of."""
        who = (self._order.job, self._order.index)
        first_unknown = orders.ranges[0].first if orders.ranges else orders.share_until
        for iteration in [number for number in self._sent if number < first_unknown]:
            sent = self._sent.pop(iteration)
            if sent > self._memory.answered.get(who, 0.0):
                self._memory.answered[who], self._memory.answered_at[who] = sent, time.monotonic()

    async def _train(self) -> None:
        while not self._heard:
            await self._wait(None)
        iteration = self._heard[0].share_from
        while True:
            iteration = await self._leave_for(iteration)
            with suppress(_Skipped):
                await self._iterate(iteration)
            iteration += 1

    async def _leave_for(self, iteration: int) -> int:
        """Stand until there is leave; the iteration to start."""
        said = -1
        while True:
            orders = self._heard[-1]
            begun = max(iteration, orders.skip_to)
            if orders.hold and orders.sequence > said:
                said = orders.sequence
                self.voice.say(lambda number, at=begun, by=orders: _held(number, at, by))  # type: ignore[misc]
            elif orders.watermark >= begun and not orders.hold:
                return begun
            await self._wait(None)

    async def _iterate(self, iteration: int) -> None:
        """One iteration, from its share to its report.

        Raises:
            _Skipped: if it need not be finished.
        """
        position, share = await self._task(iteration)
        samples = await self._compute(iteration, share)
        while self._memory.over:
            await asyncio.sleep(STEP_S)
        orders = self._current(iteration)
        if orders.announce:
            self.voice.say(
                lambda number: Computed(
                    number=number, generation=orders.generation, iteration=iteration, samples=samples
                )
            )
            await self._named(iteration)
        self._report(iteration, position, samples)

    async def _task(self, iteration: int) -> tuple[int, int]:
        """Position and share, awaited as long as orders say; then the last share holds."""
        deadline = time.monotonic() + self._heard[-1].decision_timeout_s
        while self._current(iteration).share_until < iteration and (left_s := deadline - time.monotonic()) > 0:
            await self._wait(left_s)
        speaking = [orders for orders in self._heard if orders.share_from <= iteration] or self._heard[:1]
        self._heard = self._heard[self._heard.index(speaking[-1]) :]
        return _samples(speaking[-1], self._heard[-1], iteration)

    async def _compute(self, iteration: int, share: int) -> int:
        """How many samples were processed: all of them, or those before the cut."""
        took_s = STEP_S * self._chance.uniform(0.5, 1.5)
        ends = time.monotonic() + took_s
        while (left_s := ends - time.monotonic()) > 0:
            orders = self._current(iteration)
            done = max(1, int(share * (1 - left_s / took_s)))
            if orders.cut == iteration:
                return min(share, done)
            if orders.progress_s is not None:
                self._say_progress(orders, iteration, done)
                left_s = min(left_s, max(WORDS_S, orders.progress_s))
            await self._wait(left_s)
        return share

    def _say_progress(self, orders: Orders, iteration: int, done: int) -> None:
        self.voice.say(
            lambda number: ProgressReport(
                number=number, generation=orders.generation, iteration=iteration, samples_done=done
            )
        )

    async def _named(self, iteration: int) -> None:
        """Wait, as a push does, until it is known whose updates make the iteration.

        Raises:
            _Skipped: if this worker's is not among them.
        """
        while (ranks := self._memory.quorums.get(self._order.job, {}).get(iteration)) is None:
            self._current(iteration)
            await self._wait(LOOK_S)
        if self._order.index not in ranks:
            raise _Skipped

    def _report(self, iteration: int, position: int, samples: int) -> None:
        orders = self._current(iteration)
        self._memory.reports[self._order.job, self._order.instance, orders.generation, iteration] = samples
        self._sent[iteration] = time.monotonic()
        exchanges = self._exchanges(iteration)
        self.voice.say(
            lambda number: msgspec.structs.replace(
                report(number, iteration, orders), samples=samples, position=position, exchanges=exchanges
            )
        )

    def _exchanges(self, iteration: int) -> list[Exchanged]:
        """With each server that holds anything. They are slow by turns, so that blocks have reason to move."""
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

    def _current(self, iteration: int) -> Orders:
        """The newest orders.

        Raises:
            _Skipped: if they do not ask for the iteration any more.
        """
        orders = self._heard[-1]
        if orders.skip_to > iteration:
            raise _Skipped
        return orders

    async def _wait(self, seconds: float | None) -> None:
        """Until there are newer orders, or so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)
        self._news.clear()


class Server:
    """One server: it says whose updates make an iteration, and that it handed its blocks over."""

    def __init__(self, base: str, order: ProcessOrder, memory: Memory) -> None:
        self._job, self._memory = order.job, memory
        self._orders: ServerOrders | None = None
        self._handed = 0
        """The placement for which it has handed over."""
        headers = {"Authorization": f"Bearer {order.key}", "X-Paceline-Instance": order.instance}
        self.voice = Voice(f"{base}/ws/server/{order.job}/{order.index}", headers, to_server, _server_hello, self._take)

    def _take(self, orders: ServerOrders) -> None:
        before = self._orders
        if before is not None and orders.rank_in_time <= before.rank_in_time:
            return
        if before is not None and orders.incarnation > before.incarnation:
            self.voice.say_again()
        self._orders = orders
        self._memory.quorums.setdefault(self._job, {}).update(orders.quorums)
        if orders.sends and orders.next_placement > self._handed:
            self._handed = orders.next_placement
            self.voice.say(
                lambda number: BlocksHanded(
                    number=number, placement=orders.next_placement, blocks=sorted(orders.sends), seconds=STEP_S
                )
            )


def _samples(speaking: Orders, newest: Orders, iteration: int) -> tuple[int, int]:
    """Where the samples of an iteration begin, and how many they are."""
    if speaking.pieces_of == iteration:
        return (speaking.pieces[0].start if speaking.pieces else 0), speaking.share
    for lease in newest.ranges:
        if lease.first <= iteration <= lease.last:
            return lease.position + (iteration - lease.first) * lease.share, lease.share
    before = iteration - speaking.origin_iteration
    return speaking.origin_position + before * speaking.global_batch + speaking.offset, speaking.share


def _held(number: int, iteration: int, orders: Orders) -> Held:
    return Held(number=number, generation=orders.generation, iteration=iteration, sequence=orders.sequence)


def _worker_hello(number: int) -> WorkerHello:
    return WorkerHello(number=number, parameter_count=sum(TENSOR_SIZES), sample_count=1437)


def _server_hello(number: int) -> ServerHello:
    return ServerHello(number=number, host="127.0.0.1", port=9, tensor_sizes=TENSOR_SIZES)
