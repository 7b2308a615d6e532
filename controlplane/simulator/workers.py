"""One worker in virtual time: it does the same as the training loop of ``workers.trainer`` under the same orders.

Boundary -> pull (waits for the version) -> share (waits up to a time-out) -> compute -> push -> report. Time is
attributed to the parts of an iteration as in the live loop.
"""

import math
from collections.abc import Callable
from typing import Final, Protocol

from controlplane.core.events import NumberedWorkerMessage, WorkerMessageReceived
from controlplane.protocol.messages import IterationReport, WorkerHello
from controlplane.protocol.orders import Orders, Piece
from controlplane.protocol.worker import COMPUTE, COMPUTE_STEP, PULL, STEPS, WAIT, Build, Phase, Step, WorkerMachine
from controlplane.simulator.block_quorums import BlockQuorums
from controlplane.simulator.block_transfer import BlockTransfer
from controlplane.simulator.control import Driver
from controlplane.simulator.exchanges import Exchange
from controlplane.simulator.kernel import Kernel
from controlplane.simulator.machines import Machine, Machines
from controlplane.simulator.network import Network
from controlplane.simulator.numerics.training import Training
from controlplane.simulator.probing import Probes
from controlplane.simulator.questions import Questions
from controlplane.simulator.reassignment import Helpers
from controlplane.simulator.refilling import PulledCopy, Refills
from controlplane.simulator.servers import Servers

PULL_STEP: Final = STEPS[PULL]


class Surroundings(Protocol):
    """The rest of the job, as a worker sees it."""

    kernel: Kernel
    driver: Driver
    servers: Servers
    network: Network
    refills: Refills
    moves: BlockTransfer
    helpers: Helpers | None
    questions: Questions
    mathematics: Training | None
    machines: Machines
    workers: list["SimulatedWorker"]
    parameter_count: int
    sample_count: int
    bytes: int
    sizes: dict[int, int]
    overlaps: bool
    quorums: BlockQuorums | None


class SimulatedWorker:
    """One rank. Virtual time and the other processes are in ``cluster``."""

    __slots__ = (
        "_cluster",
        "_dead",
        "_due",
        "_exchange",
        "_helps",
        "_kernel",
        "_losses",
        "_probes",
        "attempt",
        "began_s",
        "communication_s",
        "compute_from_s",
        "compute_s",
        "compute_to_s",
        "coordination_s",
        "copy",
        "instance",
        "machine",
        "missed",
        "missed_squares",
        "moved_s",
        "moving_s",
        "number",
        "pieces",
        "position",
        "protocol",
        "pulled_updates",
        "rank",
        "ready_s",
        "reports",
        "samples",
        "share",
        "silent_s",
        "total_s",
        "version_s",
        "waiting_s",
    )

    def __init__(self, rank: int, machine: Machine, cluster: Surroundings) -> None:
        self.rank, self.machine, self._cluster = rank, machine, cluster
        self._kernel = cluster.kernel
        self.instance = f"w{rank}.0.1"
        self.protocol = WorkerMachine(self._say_next, rank)
        self._dead = False
        self.attempt = 0
        """Numbers its operations, so that the end of a cancelled one is not mistaken for that of the next. The end of
        the process increases it too, so that events of the present attempt belong to a live worker.
        """
        self.number = 0
        self.share = self.position = 0
        self.silent_s: float | None = None
        """Since when it sends no heartbeats."""
        self.reports = self.samples = 0
        self.compute_s = self.communication_s = self.waiting_s = self.coordination_s = self.total_s = 0.0
        self.pieces: list[Piece] = []
        """With split data: the pieces of the present iteration."""
        self._probes = Probes(rank, cluster.network, lambda: self._kernel.now)
        self._helps = False
        self.copy = PulledCopy(self, cluster.refills)
        self._losses = 0
        """How many servers had been lost when its exchange began."""
        self.pulled_updates = 0
        self.moved_s = 0.0
        self._exchange = Exchange(
            rank, cluster.network, lambda: self._kernel.now, lambda: self.pushed(self._due), cluster.quorums
        )
        self._due = -1
        """The attempt whose update is computed; it counts when the overlapping exchange has ended."""
        self.missed = self.missed_squares = self.moving_s = 0.0
        self.began_s = self.version_s = self.ready_s = 0.0
        self.compute_from_s = self.compute_to_s = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it is alive."""
        return not self._dead and self.silent_s is None

    @property
    def orders(self) -> Orders | None:
        """The newest orders."""
        return self.protocol.orders

    @property
    def iteration(self) -> int:
        """The present iteration, or the next one."""
        return self.protocol.iteration

    @property
    def phase(self) -> Phase:
        """The phase of its iteration, or its last phase."""
        return self.protocol.phase

    def hello(self) -> None:
        """Say hello."""
        if self.is_alive:
            job = self._cluster
            hello = WorkerHello(number=1, parameter_count=job.parameter_count, sample_count=job.sample_count)
            self.say(job.questions.with_address(hello))

    def say(self, message: NumberedWorkerMessage) -> None:
        """Send a message with the next number."""
        self.number = message.number
        self._cluster.driver.append_event(
            WorkerMessageReceived(rank=self.rank, instance=self.instance, message=message)
        )

    def _say_next(self, build: Build) -> None:
        self.say(build(self.number + 1))

    def receive(self, orders: Orders) -> None:
        """Take orders; newer orders replace older ones completely."""
        protocol = self.protocol
        if not self.is_alive:
            return
        if protocol.orders is None:
            self.began_s = self._kernel.now
        attempt = protocol.attempt
        if not protocol.receive(orders):
            return
        if orders.refill:
            self.copy.help_to_refill(orders)
        if protocol.attempt != attempt:
            self.attempt += 1
        if protocol.phase is not COMPUTE:
            self._go_on()
        elif protocol.is_cut:
            self._cut()

    def begin_again(self, instance: str) -> None:
        """A new process with an empty state is about to start."""
        self.instance, self.protocol, self._dead = instance, WorkerMachine(self._say_next, self.rank), False
        self.silent_s, self.number = None, 0
        self.attempt += 1
        self._probes = Probes(self.rank, self._cluster.network, lambda: self._kernel.now)
        self._exchange.drop()
        self.copy = PulledCopy(self, self._cluster.refills)

    def die(self, *, silent: bool) -> None:
        """End the process; ``silent``: without a report of its end."""
        self.attempt += 1
        if silent:
            self.silent_s = self._kernel.now
        else:
            self._dead = True

    # -- what comes next

    def _go_on(self) -> None:
        protocol, orders = self.protocol, self.protocol.orders
        assert orders is not None
        step = protocol.next(self._kernel.now)
        if step is WAIT:
            if orders.sampling is not None and protocol.phase is Phase.BOUNDARY and protocol.wake_at_s is not None:
                self._kernel.at(protocol.wake_at_s, self._timed_out, self.attempt)
            return
        if step is PULL_STEP:
            if orders.probe_round:
                self._probes.send(orders, protocol.iteration)
            if not self._exchange.pull_blocks(protocol.iteration, self._pulled_blocks, self.attempt):
                self._cluster.servers.pull(self, protocol.iteration)
        elif step is COMPUTE_STEP:
            self._compute(max(self.ready_s, self._kernel.now))
        elif step is Step.PUSH:
            self._deliver()
        elif step is Step.ASK:
            self._cluster.questions.ask(self)
        elif step is Step.FINISH:
            protocol.finished(model_saved=orders.evaluator)

    look_again = _go_on
    """The progress of others has arrived."""

    # -- pull and share

    def _pulled_blocks(self, attempt: int) -> None:
        if attempt == self.attempt:
            self._cluster.servers.pull(self, self.iteration)

    def version_is_there(self) -> None:
        """The servers send the version that it has waited for."""
        cluster = self._cluster
        self.version_s = now = self._kernel.now
        self.pulled_updates = cluster.servers.applied
        self.attempt += 1
        self._losses = cluster.refills.losses
        if cluster.quorums is not None:
            self.version_s = max(self.began_s, now - self._exchange.pulled_s)
            self._have(now)
        elif cluster.overlaps:
            self._exchange.begin(cluster.sizes, self.iteration)
            self._have(now)
        elif cluster.network.is_shared:
            self._exchange.pull(cluster.sizes, self.iteration, self._pulled, self.attempt)
        else:
            self._have(now + cluster.network.direct_s(self.rank, cluster.bytes, self.iteration))

    def _pulled(self, attempt: int) -> None:
        if attempt == self.attempt and self._is_whole(self._pulled, 1):
            self._have(self._kernel.now)

    def _have(self, at_s: float) -> None:
        """The parameters arrive at ``at_s``, now or later."""
        self.ready_s = at_s
        self.copy.version, self.copy.steps = self.iteration, self.pulled_updates
        orders = self.orders
        assert orders is not None
        if self._cluster.mathematics is not None:
            self._cluster.mathematics.pulled(self, is_evaluator=orders.evaluator)
        self.protocol.pulled(at_s)
        self._go_on()
        if self.protocol.wake_at_s is not None:
            self._kernel.at(self.protocol.wake_at_s, self._timed_out, self.attempt)

    def _timed_out(self, attempt: int) -> None:
        if attempt == self.attempt:
            self._go_on()

    # -- compute

    def _compute(self, from_s: float) -> None:
        cluster, k = self._cluster, self.iteration
        newest, task = self.protocol.orders, self.protocol.task
        assert newest is not None
        assert task is not None
        self.position, self.pieces = task.position, task.pieces
        self._helps = False
        self.attempt += 1
        self.share = task.most if task.budget_s is None else self._within(task.budget_s, task.most, from_s)
        self.compute_from_s = from_s
        self._losses = cluster.refills.losses
        self.compute_to_s = end_s = self.machine.finish_s(self.share, from_s, k)
        if cluster.mathematics is not None:
            cluster.mathematics.begin(self)
        is_plain = cluster.helpers is None and not cluster.network.is_shared
        if newest.announce or newest.progress_s is not None or not is_plain:
            self._kernel.at(end_s, self._computed, self.attempt)
            if newest.progress_s is not None and newest.cut != k:
                self._kernel.at(from_s + newest.progress_s, self._progress, self.attempt)
        else:
            pushed_s = end_s + cluster.network.direct_s(self.rank, cluster.bytes, k)
            self._kernel.at(pushed_s, self.pushed, self.attempt)
        if newest.cut is not None and newest.cut == k and self.share:
            self._cut()

    def _within(self, budget_s: float, most: int, from_s: float) -> int:
        """How many samples fit into a time budget; the sample in progress at its end is finished."""
        return min(most, self.machine.processed(most, from_s, from_s + budget_s, self.iteration) + 1)

    def _cut(self) -> None:
        """Stop computing, and push what is processed."""
        now = self._kernel.now
        if now >= self.compute_to_s or not self.machine.interruptible:
            return
        self.share = self.machine.processed(self.share, self.compute_from_s, now, self.iteration)
        self.compute_to_s = max(now, self.compute_from_s)
        self.attempt += 1
        self._kernel.at(self.compute_to_s, self._computed, self.attempt)

    def _progress(self, attempt: int) -> None:
        protocol = self.protocol
        if attempt != self.attempt or protocol.phase is not COMPUTE:
            return
        protocol.progressed(
            self.machine.processed(self.share, self.compute_from_s, self._kernel.now, protocol.iteration)
        )
        if protocol.progress_s is not None:
            self._kernel.after(protocol.progress_s, self._progress, attempt)

    # -- work that is handed over within an iteration (a baseline)

    @property
    def now(self) -> float:
        """Virtual time."""
        return self._kernel.now

    @property
    def computes_until_s(self) -> float:
        """When its computation will end, as things are."""
        return self.compute_to_s

    def is_computing(self, iteration: int) -> bool:
        """Whether it is computing its own share of that iteration, and can hand over some of it."""
        return self.phase is COMPUTE and self.iteration == iteration and not self._helps and self.is_alive

    def left_at(self, at_s: float) -> int:
        """How many of its own samples it will not have processed by ``at_s``."""
        return self.share - self.machine.processed(self.share, self.compute_from_s, at_s, self.iteration)

    def hand_over(self, samples: int) -> None:
        """Reassign ``samples`` of its samples to another worker."""
        self.share -= samples
        self.attempt += 1
        self.compute_to_s = self.machine.finish_s(self.share, self.compute_from_s, self.iteration)
        self._kernel.at(max(self._kernel.now, self.compute_to_s), self._computed, self.attempt)

    def take_over(self, samples: int) -> None:
        """Add ``samples`` to its own."""
        self.share += samples
        self._helps = True

    # -- push and report

    def _computed(self, attempt: int) -> None:
        if attempt != self.attempt:
            return
        cluster = self._cluster
        if cluster.helpers is not None and (until_s := cluster.helpers.help_of(self, cluster.workers)) is not None:
            self.compute_to_s = until_s
            self._kernel.at(until_s, self._computed, attempt)
            return
        self.attempt += 1
        self.moved_s = 0.0
        self._begin_push()
        if cluster.moves.holds(self.iteration):
            cluster.moves.wait(self._push_when_moved, self.attempt)
        else:
            self._push()

    def _push_when_moved(self, attempt: int) -> None:
        """The blocks of this update have moved: push it."""
        if attempt == self.attempt:
            self.moved_s = self._kernel.now - self.compute_to_s
            self._push()

    def _push(self) -> None:
        cluster = self._cluster
        self._losses = cluster.refills.losses
        if cluster.overlaps:
            self._due = self.attempt
            if not self._exchange.is_under_way:
                self.pushed(self._due)
        elif cluster.network.is_shared:
            self._exchange.push(cluster.sizes, self.iteration, self.pushed, self.attempt)
        else:
            self._kernel.after(
                cluster.network.direct_s(self.rank, cluster.bytes, self.iteration), self.pushed, self.attempt
            )

    def pushed(self, attempt: int) -> None:
        """The servers have its update, unless the attempt was cancelled."""
        if attempt == self.attempt and (not self._cluster.refills.losses or self._is_whole(self.pushed, 0)):
            self.attempt += 1
            if self.protocol.phase is COMPUTE:
                # If nothing can intervene, computing and pushing are one event.
                self._begin_push()
            self._deliver()

    def _begin_push(self) -> None:
        self.protocol.computed(self.share)
        self.protocol.next(self._kernel.now)

    def _deliver(self) -> None:
        """The servers have the whole update: it counts, or is rejected."""
        servers = self._cluster.servers
        missed = servers.applied - self.pulled_updates
        if servers.push(self.rank, self.protocol.iteration, self.share):
            self.missed += missed
            self.missed_squares += missed * missed
            self._report()
        else:
            self.protocol.refused()

    def _report(self) -> None:
        protocol, now = self.protocol, self._kernel.now
        k, orders = protocol.iteration, protocol.orders
        assert orders is not None
        # The engine had its last report for held_s before it could decide: during that time the worker waited for
        # others.
        coordination_s, held_s = self.compute_from_s - self.ready_s, 0.0
        if coordination_s:
            held_s = min(max(self.began_s + orders.held_s - self.ready_s, 0.0), coordination_s)
            coordination_s -= held_s
        waiting_s = self.version_s - self.began_s + held_s + self.moved_s
        compute_s = self.compute_to_s - self.compute_from_s
        pull_s, push_s = self.ready_s - self.version_s, now - self.compute_to_s - self.moved_s
        self.reports += 1
        self.samples += self.share
        self.compute_s += compute_s
        self.communication_s += self._exchange.ended_s - self.version_s if self._cluster.overlaps else pull_s + push_s
        self.waiting_s += waiting_s
        self.coordination_s += coordination_s
        self.total_s += now - self.began_s
        self.moving_s += self.moved_s
        cpu, memory = self.machine.load(now, self.share)
        cluster, mathematics = self._cluster, self._cluster.mathematics
        is_number = math.isfinite(loss := mathematics.loss(self.rank) if mathematics is not None else 0.0)
        number, generation, samples = self.number + 1, orders.generation, self.share if is_number else 0
        self.began_s = now
        (sampled, questions), unanswered = protocol.peers.passed_by(k), protocol.peers.unanswered(k)
        protocol.pushed()

        def event() -> WorkerMessageReceived:
            report = IterationReport(
                number=number,
                generation=generation,
                iteration=k,
                samples=samples,
                position=self.position,
                loss=loss if is_number else 0.0,
                spoilt="" if is_number else str(loss),
                compute_s=compute_s,
                push_s=push_s,
                pull_s=pull_s,
                waiting_s=waiting_s,
                coordination_s=coordination_s,
                cpu=cpu,
                memory=memory,
                moving_s=self.moved_s,
                sampled=sampled,
                questions=questions,
                unanswered=unanswered,
                exchanges=self._probes.taken() + self._exchange.measured() if cluster.network.is_shared else [],
            )
            return WorkerMessageReceived(rank=self.rank, instance=self.instance, message=report)

        driver = cluster.driver
        ledger = driver.ledger if is_number and not self.moved_s and not cluster.network.is_shared else None
        self.number = number
        measured = compute_s, push_s + pull_s, waiting_s, cpu, memory
        if ledger and ledger.note(
            k, ((self.rank, self.instance, number, generation, driver.now_ms, samples, *measured),)
        ):
            driver.log_noted(event)
        else:
            driver.append_event(event())
        # Orders take effect when they arrive, never during this method.
        self._go_on()

    # -- servers that are lost

    def _is_whole(self, then: Callable[[int], None], direction: int) -> bool:
        """Whether no server was lost during the exchange; if one was, repeat the exchange with that server only."""
        refills = self._cluster.refills
        if refills.is_whole and refills.losses == self._losses:
            return True
        refills.wait(self._exchange_again, self.attempt, then, direction)
        return False

    def _exchange_again(self, attempt: int, then: Callable[[int], None], direction: int) -> None:
        if attempt == self.attempt:
            cluster = self._cluster
            self._losses = cluster.refills.losses
            cluster.network.transfer(self.rank, cluster.refills.sizes(), self.iteration, direction, then, attempt)
