"""A cluster in virtual time that follows orders: workers of given speeds, one server, and messages with a delay.

It drives the machine that all workers are, is the reference for what orders mean to a server, and knows nothing of
barriers.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controlplane.core.commands import (
    AnyCommand,
    IssueOrders,
    IssuePlacement,
    IssueServerOrders,
    MoveJob,
    RejectMessage,
    StopProcess,
)
from controlplane.core.engine import Engine
from controlplane.core.events import Entry, Event, ProcessDied, TimePassed, WorkerMessageReceived
from controlplane.core.states import JOB_OVER
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Orders, PeerAddress, ServerOrders
from controlplane.protocol.schedule import Task
from controlplane.protocol.worker import Phase, Step, WorkerMachine
from tests.core.story import Story

DELAY_MS = 1.0
"""Of every message, and of a push."""

ROUNDING_MS = 0.001
"""So that a time in seconds has surely come."""

Speed = Callable[[int], float]


@dataclass
class Start:
    """A worker began an iteration."""

    at_ms: float
    rank: int
    iteration: int
    position: int
    share: int


@dataclass
class Machine:
    """One worker."""

    rank: int
    speed: Speed
    protocol: WorkerMachine
    began_ms: float = 0.0
    attempt: int = 0
    """Counts its computations, so that the end of one that was left is not taken for that of the next."""
    dead: bool = False


class Motion:
    """Runs one job. ``speeds`` give samples per second, each a number or a function of the iteration."""

    def __init__(self, speeds: list[float | Speed], **changes: Any) -> None:
        changes = {"workers": len(speeds), "servers": 1, "batch_size": 64} | changes
        self.story = Story(**changes).starting()
        self.now_ms = float(self.story.now_ms)
        self.heap: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.loss = 1.0
        """What every worker reports."""
        self.speeds: list[Speed] = [each if callable(each) else (lambda _, s=each: s) for each in speeds]
        self.machines = {rank: self._machine(rank, speed) for rank, speed in enumerate(self.speeds)}
        self.server: ServerOrders | None = None
        self.version = 0
        self.contributed: dict[int, dict[int, int]] = {}
        self.applied: list[tuple[int, int]] = []
        self.closed: dict[int, dict[int, int]] = {}
        self.starts: list[Start] = []
        self.reports: list[tuple[float, int, int, int]] = []
        self.tick_ms: int | None = None
        self.story.server_hello(0)
        for rank in range(len(speeds)):
            self._follow(self.story.hello(rank))
        self._numbers = dict.fromkeys(range(len(speeds)), 1)

    def _machine(self, rank: int, speed: Speed) -> Machine:
        protocol = WorkerMachine(lambda build: self._say(self.machines[rank], build))
        return Machine(rank=rank, speed=speed, protocol=protocol)

    @property
    def engine(self) -> Engine:
        return self.story.engine

    @property
    def over(self) -> bool:
        return any(command.state in JOB_OVER for command in self.story.given(MoveJob))

    @property
    def state(self) -> str:
        return self.story.given(MoveJob)[-1].state

    def run(self, *, until_ms: float | None = None, events: int = 200_000) -> "Motion":
        """Until the job is over, nothing more happens, or ``until_ms`` from now on have passed."""
        end = None if until_ms is None else self.now_ms + until_ms
        while self.heap and not self.over and events:
            if end is not None and self.heap[0][0] > end:
                self.now_ms = end
                break
            self.now_ms, _, act = heapq.heappop(self.heap)
            act()
            events -= 1
        assert events, "it does not come to an end"
        return self

    def tell(self, event: Event) -> list[AnyCommand]:
        """Something happens now."""
        return self._see(event)

    def kill(self, rank: int) -> None:
        """A worker dies now."""
        self.machines[rank].dead = True
        self.tell(ProcessDied(role="worker", index=rank, instance=f"w{rank}.0.1", status=-9))

    def at(self, in_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now_ms + in_ms, next(self.order), act))

    # -- the control plane

    def _see(self, event: Event) -> list[AnyCommand]:
        self.story.now_ms = int(self.now_ms)
        before = len(self.story.entries)
        commands = self.story.see(event, after_ms=0)
        assert isinstance(self.story.entries[before], Entry)
        self._follow(commands)
        return commands

    def _follow(self, commands: list[AnyCommand]) -> None:
        for command in commands:
            assert not isinstance(command, RejectMessage), command.reason
            if isinstance(command, IssueOrders):
                self.at(DELAY_MS, lambda c=command: self._hear(c.rank, c.orders))
            elif isinstance(command, IssuePlacement) and command.peers:
                version = command.incarnation, command.generation
                self.machines[command.rank].protocol.peers.enlist(command.peers, version)
            elif isinstance(command, StopProcess) and command.role == "worker":
                self.machines[command.index].dead = True
            elif isinstance(command, IssueServerOrders):
                self.at(DELAY_MS, lambda c=command: self._serve(c.orders))
        due = self.engine.deadline_ms
        if due is not None and (self.tick_ms is None or due < self.tick_ms):
            self.tick_ms = due
            self.at(max(0.0, due - self.now_ms), lambda at=due: self._tick(at))

    def _tick(self, at_ms: int) -> None:
        if at_ms == self.tick_ms and not self.over:
            self.tick_ms = None
            alive = {f"worker:{r}:w{r}.0.1": int(self.now_ms) for r, m in self.machines.items() if not m.dead}
            self._see(TimePassed(seen=alive | {"server:0:s0.0.1": int(self.now_ms)}))

    def _say(self, machine: Machine, build: Callable[[int], Any]) -> None:
        self._numbers[machine.rank] += 1
        message = build(self._numbers[machine.rank])
        rank = machine.rank

        def arrive() -> None:
            if not self.over and not machine.dead:
                self._see(WorkerMessageReceived(rank=rank, instance=f"w{rank}.0.1", message=message))

        self.at(DELAY_MS, arrive)

    # -- a worker

    def _hear(self, rank: int, orders: Orders) -> None:
        machine = self.machines[rank]
        before = machine.protocol.attempt
        machine.protocol.receive(orders)
        machine.attempt += machine.protocol.attempt - before
        self._go_on(machine)

    def _go_on(self, machine: Machine) -> None:
        protocol = machine.protocol
        if protocol.orders is None or machine.dead:
            return
        if protocol.phase is Phase.COMPUTE and protocol.is_cut and self._task(machine).share:
            self._end(machine, machine.attempt)
        step = protocol.next(self.now_ms / 1000)
        if step is Step.FINISH:
            protocol.finished(model_saved=False)
        if protocol.phase is Phase.PULL and (self._is_free(protocol.iteration) or self.version >= protocol.iteration):
            # The share is not awaited: what is known now is what counts.
            protocol.pulled(-math.inf)
            step = protocol.next(self.now_ms / 1000)
        if step is Step.COMPUTE:
            self._begin(machine)
        elif step is Step.ASK:
            for peer in protocol.peers.asks:
                self.at(DELAY_MS, lambda asked=peer: self._ask(machine, asked))
        elif protocol.phase is Phase.BOUNDARY and protocol.wake_at_s is not None:
            wait_ms = max(0.0, protocol.wake_at_s * 1000 - self.now_ms) + ROUNDING_MS
            self.at(wait_ms, lambda: self._at_boundary(machine))

    def _ask(self, machine: Machine, peer: PeerAddress) -> None:
        asked = self.machines[peer.rank]
        iteration = None if asked.dead else asked.protocol.iteration
        self.at(DELAY_MS, lambda: self._answer(machine, peer, iteration))

    def _answer(self, machine: Machine, peer: PeerAddress, iteration: int | None) -> None:
        peers, now_s = machine.protocol.peers, self.now_ms / 1000
        if iteration is None:
            peers.silent(peer.rank, peer.instance, now_s)
        else:
            peers.answered(peer.rank, peer.instance, iteration, now_s)
        self._at_boundary(machine)

    def _at_boundary(self, machine: Machine) -> None:
        if machine.protocol.phase is Phase.BOUNDARY:
            self._go_on(machine)

    def _task(self, machine: Machine) -> Task:
        assert machine.protocol.task is not None
        return machine.protocol.task

    def _begin(self, machine: Machine) -> None:
        protocol, task = machine.protocol, self._task(machine)
        machine.began_ms = self.now_ms
        machine.attempt += 1
        self.starts.append(Start(self.now_ms, machine.rank, task.iteration, task.position, task.share))
        attempt = machine.attempt
        self.at(task.share / machine.speed(task.iteration) * 1000, lambda: self._end(machine, attempt))
        if protocol.progress_s is not None:
            self.at(protocol.progress_s * 1000, lambda: self._progress(machine, attempt))

    def _done_samples(self, machine: Machine) -> int:
        took_s, task = (self.now_ms - machine.began_ms) / 1000, self._task(machine)
        return min(task.share, int(took_s * machine.speed(task.iteration) + 1e-6))

    def _progress(self, machine: Machine, attempt: int) -> None:
        protocol = machine.protocol
        if machine.attempt != attempt or machine.dead:
            return
        protocol.progressed(self._done_samples(machine))
        self.at((protocol.progress_s or 1.0) * 1000, lambda: self._progress(machine, attempt))

    def _end(self, machine: Machine, attempt: int) -> None:
        if machine.attempt != attempt or machine.dead:
            return
        machine.attempt += 1
        samples, attempt = self._done_samples(machine), machine.attempt
        took_s = (self.now_ms - machine.began_ms) / 1000
        machine.protocol.computed(samples)
        assert machine.protocol.next(self.now_ms / 1000) is Step.PUSH
        self.at(DELAY_MS, lambda: self._push(machine, attempt, samples, took_s))

    def _push(self, machine: Machine, attempt: int, samples: int, took_s: float) -> None:
        protocol = machine.protocol
        k, orders = protocol.iteration, protocol.orders
        assert orders is not None
        if machine.attempt != attempt or machine.dead or not self._accept(machine.rank, k, samples):
            return
        protocol.pushed()
        self.reports.append((self.now_ms, machine.rank, k, samples))
        report = {"generation": orders.generation, "iteration": k, "samples": samples, "position": 0}
        spent = {"compute_s": took_s, "push_s": 0.001, "pull_s": 0.0, "waiting_s": 0.0, "coordination_s": 0.0}
        self._say(machine, lambda n: IterationReport(number=n, loss=self.loss, **report, **spent))
        self._go_on(machine)

    # -- the server

    def _is_free(self, k: int) -> bool:
        return self.server is not None and self.server.apply != "quorum" and k >= self.server.apply_from

    def _serve(self, orders: ServerOrders) -> None:
        if self.server is None or orders.rank_in_time > self.server.rank_in_time:
            self.server = orders
            if orders.apply == "quorum":
                self.version = max(self.version, min(orders.apply_from, self._everybody_skipped(orders)))
            self._close()

    def _everybody_skipped(self, orders: ServerOrders) -> int:
        """After an asynchronous phase the numbers up to ``apply_from`` are no one's."""
        return orders.apply_from if not self.contributed.get(orders.apply_from - 1) and self.applied else 0

    def _accept(self, rank: int, k: int, samples: int) -> bool:
        assert self.server is not None
        if self._is_free(k):
            assert (rank, k) not in self.applied, f"w{rank} pushes iteration {k} twice"
            self.applied.append((rank, k))
            return True
        if k < self.version or (k in self.server.quorums and rank not in self.server.quorums[k]):
            return False
        self.contributed.setdefault(k, {})[rank] = samples
        self._close()
        return True

    def _close(self) -> None:
        assert self.server is not None
        while not self._is_free(self.version) and self._is_complete(self.version):
            self.closed[self.version] = self.contributed.pop(self.version, {})
            self.version += 1
        for machine in sorted(self.machines.values(), key=lambda m: m.rank):
            if machine.protocol.phase in (Phase.BOUNDARY, Phase.PULL):
                self.at(0.0, lambda m=machine: self._go_on(m))

    def _is_complete(self, k: int) -> bool:
        assert self.server is not None
        members = {member.rank for member in self.server.members if member.from_iteration <= k}
        if k in self.server.quorums:
            members &= set(self.server.quorums[k])
        elif self.server.named_from is not None and k >= self.server.named_from:
            return False
        return members <= self.contributed.get(k, {}).keys()
