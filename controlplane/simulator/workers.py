"""One worker in virtual time: what the training loop of ``workers.trainer`` does, by the same orders.

Boundary -> pull (held until the version is there) -> share (awaited for a while) -> compute -> push -> report. Time is
charged to the parts of an iteration by the live loop's definition.
"""

import math
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING

from controlplane.core.events import WorkerHeard, WorkerSaid
from controlplane.protocol.messages import (
    Computed,
    Exchanged,
    Held,
    IterationReport,
    ProgressReport,
    WorkerFinished,
    WorkerHello,
)
from controlplane.protocol.orders import Orders, Piece
from controlplane.simulator.copies import PulledCopy
from controlplane.simulator.machines import Machine
from controlplane.simulator.probing import Probes
from controlplane.simulator.schedule import Schedule

if TYPE_CHECKING:
    from controlplane.simulator.cluster import Cluster


class Phase(IntEnum):
    """Where a worker is."""

    STARTING = 0
    BOUNDARY = 1
    """Waits for leave."""
    PULL = 2
    """Waits for a version, or receives it."""
    SHARE = 3
    """Waits for orders that name its share."""
    COMPUTE = 4
    PUSH = 5
    STALE = 6
    """Its update does not count any more: waits for orders that say what to do instead."""
    FINISHED = 7
    DEAD = 8


class SimulatedWorker:
    """One rank. Virtual time and everybody else are in ``cluster``."""

    __slots__ = (
        "_cluster",
        "_compute_from_s",
        "_compute_to_s",
        "_copy",
        "_generation",
        "_helps",
        "_kernel",
        "_losses",
        "_moving_s",
        "_probes",
        "_pull_took",
        "_pulled_updates",
        "_push_took",
        "_ready_s",
        "_released_s",
        "_said_held",
        "_schedule",
        "_sizes",
        "_version_s",
        "attempt",
        "began_s",
        "communication_s",
        "compute_s",
        "coordination_s",
        "instance",
        "iteration",
        "machine",
        "missed",
        "missed_squares",
        "moving_s",
        "number",
        "orders",
        "phase",
        "pieces",
        "position",
        "rank",
        "reports",
        "samples",
        "share",
        "silent_s",
        "total_s",
        "waiting_s",
    )

    def __init__(self, rank: int, machine: Machine, cluster: "Cluster") -> None:
        self.rank, self.machine, self._cluster = rank, machine, cluster
        self._kernel = cluster.kernel
        self.instance = f"w{rank}.0.1"
        self.phase = Phase.STARTING
        self.orders: Orders | None = None
        self.iteration = 0
        self.attempt = 0
        """Counts what it began, so that the end of something that was left is not taken for that of the next.

        Its death counts too: what is of this attempt is of a worker that lives.
        """
        self.number = 0
        self.share = self.position = 0
        self.silent_s: float | None = None
        """Since when it gives no sign of life."""
        self.reports = self.samples = 0
        self.compute_s = self.communication_s = self.waiting_s = self.coordination_s = self.total_s = 0.0
        self.pieces: list[Piece] = []
        """Of the iteration that it is in, where the data set is split."""
        self._schedule = Schedule()
        self._probes = self._no_probes()
        self._said_held = -1
        self._helps = False
        self._copy = PulledCopy(self, cluster.refills)
        self._losses = 0
        """So many servers had been lost when its exchange began."""
        self._pulled_updates = 0
        self._moving_s = 0.0
        self._sizes: dict[int, int] = {}
        self._pull_took: dict[int, float] = {}
        self._push_took: dict[int, float] = {}
        self.missed = self.missed_squares = self.moving_s = 0.0
        self._generation = 0
        self.began_s = self._released_s = self._version_s = self._ready_s = 0.0
        self._compute_from_s = self._compute_to_s = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it still acts."""
        return self.phase is not Phase.DEAD and self.silent_s is None

    def hello(self) -> None:
        """Its first words."""
        if self.is_alive:
            job = self._cluster
            self.say(WorkerHello(number=1, parameter_count=job.parameter_count, sample_count=job.sample_count))

    def say(self, message: WorkerSaid) -> None:
        """Send a message with the next number."""
        self.number = message.number
        self._cluster.driver.tell(WorkerHeard(rank=self.rank, instance=self.instance, message=message))

    def hear(self, orders: Orders) -> None:
        """Newer orders replace older ones whole."""
        if not self.is_alive:
            return
        if self.orders is None:
            self.iteration, self.began_s, self.phase = orders.share_from, self._kernel.now, Phase.BOUNDARY
        elif orders.rank_in_time <= self.orders.rank_in_time:
            return
        self.orders = orders
        self._schedule.hear(orders)
        if orders.refill:
            self._copy.help_to_refill(orders)
        if orders.skip_to > self.iteration and self.phase is not Phase.FINISHED:
            self.attempt += 1
            self.iteration, self.phase = orders.skip_to, Phase.BOUNDARY
        if self.phase is Phase.BOUNDARY:
            self._go_on()
        elif self.phase is Phase.SHARE:
            self._take_share()
        elif self.phase is Phase.COMPUTE and orders.cut == self.iteration:
            self._cut()
        elif self.phase is Phase.STALE and orders.generation > self._generation:
            self._push_again()

    def begin_again(self, instance: str) -> None:
        """A new process of it is about to start, and knows nothing of the one before."""
        self.instance, self.phase = instance, Phase.STARTING
        self.orders, self.silent_s, self.number = None, None, 0
        self.attempt += 1
        self._schedule.forget()
        self._said_held, self._probes = -1, self._no_probes()
        self._copy = PulledCopy(self, self._cluster.refills)

    def die(self, *, silent: bool) -> None:
        """Stop acting; ``silent``: nobody says so."""
        self.attempt += 1
        if silent:
            self.silent_s = self._kernel.now
        else:
            self.phase = Phase.DEAD

    # -- boundary

    def _go_on(self) -> None:
        orders, k = self.orders, self.iteration
        assert orders is not None
        if orders.stop_at is not None and orders.stop_at <= k:
            self.phase = Phase.FINISHED
            self.say(WorkerFinished(number=self.number + 1, iteration=k, model_saved=orders.evaluator))
        elif orders.hold:
            if self._said_held < orders.sequence:
                self._said_held = orders.sequence
                self.say(
                    Held(number=self.number + 1, generation=orders.generation, iteration=k, sequence=orders.sequence)
                )
        elif orders.watermark >= k:
            self._released_s = self._kernel.now
            if orders.probe_round:
                self._probes.send(orders, k)
            self.phase = Phase.PULL
            self._cluster.servers.pull(self, k)

    # -- pull and share

    def version_is_there(self) -> None:
        """The servers send what it has waited for."""
        cluster = self._cluster
        self._version_s = now = self._kernel.now
        self._pulled_updates = cluster.servers.applied
        self.attempt += 1
        self._losses = cluster.refills.losses
        if cluster.network.is_shared:
            sizes = self._sizes = cluster.sizes
            self._pull_took = cluster.network.transfer(self.rank, sizes, self.iteration, 1, self._pulled, self.attempt)
        else:
            self._have(now + cluster.network.direct_s(self.rank, cluster.bytes, self.iteration))

    def _pulled(self, attempt: int) -> None:
        if attempt == self.attempt and self._is_whole(self._pulled, 1):
            self._have(self._kernel.now)

    def _have(self, at_s: float) -> None:
        """The parameters are here at ``at_s``, which may be soon."""
        self._ready_s = at_s
        self._copy.version, self._copy.steps = self.iteration, self._pulled_updates
        orders = self.orders
        assert orders is not None
        if self._cluster.mathematics is not None:
            self._cluster.mathematics.pulled(self, is_evaluator=orders.evaluator)
        if orders.share_until >= self.iteration:
            self._compute(at_s)
        else:
            self.phase = Phase.SHARE
            self._kernel.at(at_s + orders.decision_timeout_s, self._timed_out, self.attempt)

    def _take_share(self) -> None:
        orders = self.orders
        assert orders is not None
        if orders.stop_at is not None and orders.stop_at <= self.iteration:
            self.phase = Phase.BOUNDARY
            self._go_on()
        elif orders.share_until >= self.iteration:
            self._compute(max(self._ready_s, self._kernel.now))

    def _timed_out(self, attempt: int) -> None:
        if attempt == self.attempt and self.phase is Phase.SHARE:
            self._compute(self._kernel.now)

    # -- compute

    def _compute(self, from_s: float) -> None:
        cluster, k = self._cluster, self.iteration
        newest = self.orders
        assert newest is not None
        task = self._schedule
        task.turn_to(k)
        self.position, self.pieces = task.position, task.pieces
        self._helps = False
        self.phase = Phase.COMPUTE
        self.attempt += 1
        self.share = task.most if task.budget_s is None else self._within(task.budget_s, task.most, from_s)
        self._compute_from_s = from_s
        self._losses = cluster.refills.losses
        self._compute_to_s = end_s = self.machine.finish_s(self.share, from_s, k)
        if cluster.mathematics is not None:
            cluster.mathematics.begin(self)
        is_plain = cluster.helpers is None and not cluster.network.is_shared
        if newest.announce or newest.progress_s is not None or not is_plain:
            self._kernel.at(end_s, self._computed, self.attempt)
            if newest.progress_s is not None and newest.cut != k:
                self._kernel.at(from_s + newest.progress_s, self._progress, self.attempt)
        else:
            pushed_s = end_s + cluster.network.direct_s(self.rank, cluster.bytes, k)
            self._kernel.at(pushed_s, self._pushed, self.attempt)
        if newest.cut is not None and newest.cut == k and self.share:
            self._cut()

    def _within(self, budget_s: float, most: int, from_s: float) -> int:
        """How many samples a time budget is enough for; the one that is under way at its end is finished."""
        return min(most, self.machine.processed(most, from_s, from_s + budget_s, self.iteration) + 1)

    def _cut(self) -> None:
        """Stop where it is: what is processed is pushed."""
        now = self._kernel.now
        if now >= self._compute_to_s or not self.machine.interruptible:
            return
        self.share = self.machine.processed(self.share, self._compute_from_s, now, self.iteration)
        self._compute_to_s = max(now, self._compute_from_s)
        self.attempt += 1
        self._kernel.at(self._compute_to_s, self._computed, self.attempt)

    def _progress(self, attempt: int) -> None:
        orders = self.orders
        if attempt != self.attempt or self.phase is not Phase.COMPUTE or orders is None:
            return
        done = self.machine.processed(self.share, self._compute_from_s, self._kernel.now, self.iteration)
        self.say(
            ProgressReport(
                number=self.number + 1, generation=orders.generation, iteration=self.iteration, samples_done=done
            )
        )
        if orders.progress_s is not None:
            self._kernel.after(orders.progress_s, self._progress, attempt)

    # -- work that is handed over within an iteration (a baseline)

    @property
    def now(self) -> float:
        """Virtual time."""
        return self._kernel.now

    @property
    def computes_until_s(self) -> float:
        """When it will have computed, as it is."""
        return self._compute_to_s

    def is_computing(self, iteration: int) -> bool:
        """Whether it is computing its own share of that iteration, and can hand over some of it."""
        return self.phase is Phase.COMPUTE and self.iteration == iteration and not self._helps and self.is_alive

    def left_at(self, at_s: float) -> int:
        """How many samples of its own it will not have processed by then."""
        return self.share - self.machine.processed(self.share, self._compute_from_s, at_s, self.iteration)

    def hand_over(self, samples: int) -> None:
        """So many of its samples are somebody else's now."""
        self.share -= samples
        self.attempt += 1
        self._compute_to_s = self.machine.finish_s(self.share, self._compute_from_s, self.iteration)
        self._kernel.at(max(self._kernel.now, self._compute_to_s), self._computed, self.attempt)

    def take_over(self, samples: int) -> None:
        """So many more are its own."""
        self.share += samples
        self._helps = True

    # -- push and report

    def _computed(self, attempt: int) -> None:
        if attempt != self.attempt:
            return
        cluster, orders = self._cluster, self.orders
        assert orders is not None
        if cluster.helpers is not None and (until_s := cluster.helpers.help_of(self, cluster.workers)) is not None:
            self._compute_to_s = until_s
            self._kernel.at(until_s, self._computed, attempt)
            return
        self.phase = Phase.PUSH
        self.attempt += 1
        self._moving_s = 0.0
        if orders.announce:
            number, k = self.number + 1, self.iteration
            self.say(Computed(number=number, generation=orders.generation, iteration=k, samples=self.share))
        if cluster.moves.holds(self.iteration):
            cluster.moves.wait(self._push_when_moved, self.attempt)
        else:
            self._push()

    def _push_when_moved(self, attempt: int) -> None:
        """Blocks have moved that this update is for: it has waited since it was computed."""
        if attempt == self.attempt:
            self._moving_s = self._kernel.now - self._compute_to_s
            self._push()

    def _push(self) -> None:
        cluster = self._cluster
        self._losses = cluster.refills.losses
        if cluster.network.is_shared:
            sizes = self._sizes = cluster.sizes
            self._push_took = cluster.network.transfer(self.rank, sizes, self.iteration, 0, self._pushed, self.attempt)
        else:
            self._kernel.after(
                cluster.network.direct_s(self.rank, cluster.bytes, self.iteration), self._pushed, self.attempt
            )

    def _pushed(self, attempt: int) -> None:
        if attempt == self.attempt and (not self._cluster.refills.losses or self._is_whole(self._pushed, 0)):
            self.attempt += 1
            self._push_again()

    def _push_again(self) -> None:
        orders, k, servers = self.orders, self.iteration, self._cluster.servers
        assert orders is not None
        self._generation = orders.generation
        missed = servers.applied - self._pulled_updates
        if servers.push(self.rank, k, self.share):
            self.missed += missed
            self.missed_squares += missed * missed
            self._report(k)
        else:
            self.phase = Phase.STALE

    def _report(self, k: int) -> None:
        now, orders = self._kernel.now, self.orders
        assert orders is not None
        # The engine had its last report for held_s before it could decide: until then it waited for others.
        coordination_s, held_s = self._compute_from_s - self._ready_s, 0.0
        if coordination_s:
            held_s = min(max(self.began_s + orders.held_s - self._ready_s, 0.0), coordination_s)
            coordination_s -= held_s
        waiting_s = self._version_s - self.began_s + held_s + self._moving_s
        compute_s = self._compute_to_s - self._compute_from_s
        pull_s, push_s = self._ready_s - self._version_s, now - self._compute_to_s - self._moving_s
        self.reports += 1
        self.samples += self.share
        self.compute_s += compute_s
        self.communication_s += pull_s + push_s
        self.waiting_s += waiting_s
        self.coordination_s += coordination_s
        self.total_s += now - self.began_s
        self.moving_s += self._moving_s
        cpu, memory = self.machine.load(now, self.share)
        cluster = self._cluster
        mathematics = cluster.mathematics
        loss = mathematics.loss(self.rank) if mathematics is not None else 0.0
        is_number = math.isfinite(loss)
        self.began_s, self.iteration, self.phase = now, k + 1, Phase.BOUNDARY
        self.say(
            IterationReport(
                number=self.number + 1,
                generation=self._generation,
                iteration=k,
                samples=self.share if is_number else 0,
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
                moving_s=self._moving_s,
                exchanges=self._exchanges() if cluster.network.is_shared else [],
            )
        )
        # Orders are carried out when they arrive, never in the middle of this: the boundary is still its own.
        self._go_on()

    # -- servers that are lost

    def _is_whole(self, then: Callable[[int], None], direction: int) -> bool:
        """Whether no server was lost during the exchange; where one was, it is made again with that one alone."""
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

    # -- exchanges with servers

    def _no_probes(self) -> Probes:
        return Probes(self.rank, self._cluster.network, lambda: self._kernel.now)

    def _exchanges(self) -> list[Exchanged]:
        """Those with servers that it both pulled from and pushed to, and probes that have come back."""
        pulled, pushed, sizes = self._pull_took, self._push_took, self._sizes
        return self._probes.taken() + [
            Exchanged(server=server, bytes=sizes[server], push_s=pushed[server], pull_s=pulled[server])
            for server in sorted(sizes)
            if server in pulled and server in pushed
        ]
