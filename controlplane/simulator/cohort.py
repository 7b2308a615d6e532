"""Simulates workers in lockstep as arrays: those that begin at the same instant compute, push and report in one pass.

In lockstep a version releases all workers at once, and reports cause no decision until the last worker has pushed. Such
an iteration, a *lap*, needs no event per worker: times are computed for all of them, and reports are recorded in the
order of arrival until another event is due. The report that completes an iteration, and any report that is not plain,
is handled as for a single worker. The same holds for all workers when orders, deaths or other events intervene:
``settle`` then gives every worker the state that it would have after its own events. Results are the same to the byte
(``tests/simulator/test_cohort.py``).
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controlplane.core.events import WorkerMessageReceived
from controlplane.protocol.messages import IterationReport
from controlplane.protocol.orders import Orders
from controlplane.protocol.schedule import task_of
from controlplane.protocol.worker import COMPUTE, PULL
from controlplane.simulator.servers import NO_ATTEMPT
from controlplane.simulator.workers import SimulatedWorker, Surroundings

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LEAST: Final = 16
"""With fewer workers, simulating them one by one is faster."""

LAP: Final = 3
"""How often an iteration raises a worker's ``attempt``."""

SUMS: Final = ("compute_s", "communication_s", "waiting_s", "total_s", "samples", "reports", "missed", "missed_squares")
"""Fields that a worker sums over its iterations."""


Loads = tuple[list[float], list[float]]
"""CPU and memory use of several machines."""


class Spent(NamedTuple):
    """Parts of the iteration time of several workers."""

    compute_s: Floats
    push_s: Floats
    pull_s: Floats
    waiting_s: Floats


class Lap:
    """One iteration of the workers in step. ``ranks`` in the order in which they push."""

    __slots__ = ("iteration", "left_over", "next", "ranks", "sequences", "times")

    def __init__(self, iteration: int, ranks: Integers, times: list[float], sequences: list[int]) -> None:
        self.iteration, self.ranks, self.times, self.sequences = iteration, ranks, times, sequences
        self.next = 0
        """Index of the first worker that has not pushed yet."""
        self.left_over: tuple[SimulatedWorker, int] | None = None
        """After ``settle``: the worker and the attempt whose push the event of this lap is."""


class Cohort:
    """The workers of one job that are in step now. Until they leave, their own fields are not updated."""

    def __init__(self, job: Surroundings, *, least: int) -> None:
        """``least``: the smallest number of workers that must begin at the same instant."""
        self._job, self._least = job, least
        self._kernel, self._driver, self._servers = job.kernel, job.driver, job.servers
        count = len(job.workers)
        self._lap: Lap | None = None
        self._loaded = np.zeros(count, dtype=bool)
        self._any = False
        """Whether any worker is in step."""
        self._orders_before: dict[int, Orders | None] = {}
        """By rank: the orders with which a worker began its lap, if it has newer ones by now."""
        self._last = -1
        """The last iteration that all workers in step may begin, and continue from, under their present orders."""
        self._at: Integers = np.zeros(count, dtype=np.int64)
        """The iteration that each worker computes, or waits to pull."""
        self._computes = np.zeros(count, dtype=bool)
        self._instances, self._generations = [""] * count, [0] * count
        self._laps = np.zeros(count, dtype=np.int64)
        """How many laps each worker has begun since it was loaded."""
        self._share: Integers = np.zeros(count, dtype=np.int64)
        self._number: Integers = np.zeros(count, dtype=np.int64)
        self._began_s, self._ready_s, self._finish_s = np.zeros(count), np.zeros(count), np.zeros(count)
        self._sums: dict[str, Any] = {
            name: np.zeros(count, dtype=np.int64 if name in ("samples", "reports") else np.float64) for name in SUMS
        }
        self._version_s, self._pulled_updates = 0.0, 0
        """The time at which the lap's version was complete, and the number of updates in it."""

    # -- a lap begins

    def take(self, held: Sequence[tuple[SimulatedWorker, int]], iteration: int) -> bool:
        """Begin ``iteration`` with all workers that waited for its version; False if each must begin separately."""
        if self._lap is not None and self._lap.next < len(self._lap.times):
            self.settle()
        if len(held) >= self._least and self._lets_all_go(iteration):
            ranks = np.fromiter((worker.rank for worker, _ in held), dtype=np.int64, count=len(held))
            if self._load(held, ranks, iteration):
                self._begin(ranks, iteration)
                return True
        self.settle()
        return False

    def _lets_all_go(self, iteration: int) -> bool:
        """Whether only time passes between a version and the reports of the workers that begin from it."""
        job = self._job
        return (
            job.mathematics is None
            and job.helpers is None
            and not job.network.is_shared
            and not job.refills.losses
            and self._servers.is_plain(iteration)
        )

    def receive(self, worker: SimulatedWorker, orders: Orders) -> bool:
        """Accept orders for a worker in step that change nothing before the next version; False if ``settle`` is needed
        first.
        """
        rank, protocol = worker.rank, worker.protocol
        k, before = int(self._at[rank]), protocol.orders
        goes_on = not orders.hold and orders.watermark > k and (orders.stop_at is None or orders.stop_at > k + 1)
        if before is None or not goes_on or not _is_plain(orders) or orders.skip_to > protocol.iteration:
            return False
        if orders.share_from <= k and not (_draws_alike(orders, before) or task_of(orders, k) == task_of(before, k)):
            return False
        if protocol.receive(orders):
            self._generations[rank] = orders.generation
            self._orders_before.setdefault(rank, before)
        return True

    def has(self, rank: int) -> bool:
        """Whether that worker is in step."""
        return bool(self._loaded[rank])

    def _load(self, held: Sequence[tuple[SimulatedWorker, int]], ranks: Integers, iteration: int) -> bool:
        """Load workers that are not in step yet, and newer orders; False if something is not plain."""
        before, members, workers = self._orders_before, self._servers.members, self._job.workers
        new = [held[place] for place in np.flatnonzero(~self._loaded[ranks]).tolist()]
        renewed = [workers[rank] for rank in before if self._loaded[rank]]
        last = min((_last_plain(worker, attempt, iteration) for worker, attempt in new), default=self._last)
        if renewed:
            last = min(last, *(_last_by_newer(worker, iteration) for worker in renewed))
        begins_anew = len(new) + len(renewed) >= len(held)
        self._last = last if begins_anew else min(last, self._last)
        if self._last < iteration or not all(worker.rank in members for worker, _ in new):
            return False
        before.clear()
        changed = [*renewed, *(worker for worker, _ in new)]
        at = np.array([worker.rank for worker in changed], dtype=np.int64)
        self._share[at] = [worker.protocol.orders.share for worker in changed if worker.protocol.orders is not None]
        if new:
            self._take_in([worker for worker, _ in new])
        return True

    def _take_in(self, new: Sequence[SimulatedWorker]) -> None:
        for worker in new:
            assert worker.orders is not None
            self._instances[worker.rank], self._generations[worker.rank] = worker.instance, worker.orders.generation
        at = np.array([worker.rank for worker in new], dtype=np.int64)
        self._any, self._loaded[at], self._laps[at] = True, True, 0
        self._number[at] = [worker.number for worker in new]
        self._began_s[at] = [worker.began_s for worker in new]
        for name, array in self._sums.items():
            array[at] = [getattr(worker, name) for worker in new]

    def _begin(self, ranks: Integers, k: int) -> None:
        job, now = self._job, self._kernel.now
        self._version_s, self._pulled_updates = now, self._servers.applied
        ready = now + job.network.direct_all_s(ranks, job.bytes, k)
        finish = job.machines.finish_s(ranks, self._share[ranks], ready, k)
        pushed = finish + job.network.direct_all_s(ranks, job.bytes, k)
        first = self._kernel.reserve(pushed)
        order = np.argsort(pushed, kind="stable")
        self._ready_s[ranks], self._finish_s[ranks] = ready, finish
        self._at[ranks], self._computes[ranks] = k, True
        self._laps[ranks] += 1
        self._lap = Lap(k, ranks[order], pushed[order].tolist(), (order + first).tolist())
        self._plan(self._lap)

    def _plan(self, lap: Lap) -> None:
        self._kernel.at_reserved(lap.times[lap.next], lap.sequences[lap.next], self._go_on, lap)

    # -- pushes and reports

    def _go_on(self, lap: Lap) -> None:
        """The next push is due; continue with later ones until another event is due."""
        if lap.left_over is not None:
            worker, attempt = lap.left_over
            worker.pushed(attempt)
            return
        kernel, count = self._kernel, len(lap.times)
        kernel.happened -= 1  # each push is counted by itself
        while lap is self._lap and lap.next < count and lap.left_over is None:
            due_s, due = kernel.until()
            here = lap.next
            if kernel.halted or (lap.times[here], lap.sequences[here]) > (due_s, due):
                self._plan(lap)
                return
            stop = bisect_left(lap.times, due_s, here)
            while stop < count and (lap.times[stop], lap.sequences[stop]) < (due_s, due):
                stop += 1
            if not self._push(lap, here, min(stop, here + self._servers.room(lap.iteration))):
                self._push_one(lap)

    def _push_one(self, lap: Lap) -> None:
        """Handle the next push as a separate event, since it may cause a decision."""
        rank = int(lap.ranks[lap.next])
        self._kernel.now = lap.times[lap.next]
        self._kernel.happened += 1
        lap.next += 1
        worker = self._job.workers[rank]
        self._write_back(np.array([rank], dtype=np.int64))
        worker.pushed(worker.attempt)

    def _push(self, lap: Lap, here: int, stop: int) -> bool:
        """Perform these pushes up to the first whose report the engine must handle; whether there were any."""
        ledger = self._driver.ledger
        if ledger is None or stop <= here:
            return False
        k, ranks, times_s = lap.iteration, lap.ranks[here:stop], lap.times[here:stop]
        share, loads = self._share[ranks], self._job.machines.loads(ranks, times_s, self._share[ranks])
        spent = self._spent(ranks, np.array(times_s))
        ms: list[int] = self._driver.ms_of(np.array(times_s))
        at = ranks.tolist()
        instances, generations = self._instances, self._generations
        noted = ledger.note(
            k,
            zip(
                at,
                [instances[rank] for rank in at],
                (self._number[ranks] + 1).tolist(),
                [generations[rank] for rank in at],
                ms,
                share.tolist(),
                spent.compute_s.tolist(),
                (spent.pull_s + spent.push_s).tolist(),
                spent.waiting_s.tolist(),
                *loads,
                strict=True,
            ),
        )
        if noted:
            lap.next += noted
            ranks = ranks[:noted]
            self._driver.log_all_noted(times_s[:noted], ms[:noted], partial(self._event, k, ranks, spent, loads))
            self._kernel.now = times_s[noted - 1]
            self._kernel.happened += noted
            self._count(k, ranks, np.array(times_s[:noted]), spent)
        return noted > 0

    def _spent(self, ranks: Integers, pushed_s: Floats) -> Spent:
        ready, finish = self._ready_s[ranks], self._finish_s[ranks]
        return Spent(
            compute_s=finish - ready,
            push_s=pushed_s - finish,
            pull_s=ready - self._version_s,
            waiting_s=self._version_s - self._began_s[ranks],
        )

    def _count(self, k: int, ranks: Integers, pushed_s: Floats, spent: Spent) -> None:
        """These workers have pushed: the servers have their updates, and they wait for the next version."""
        sums, n, share = self._sums, len(ranks), self._share[ranks]
        missed = self._servers.applied - self._pulled_updates
        for name, more in (
            ("compute_s", spent.compute_s[:n]),
            ("communication_s", spent.pull_s[:n] + spent.push_s[:n]),
            ("waiting_s", spent.waiting_s[:n]),
            ("total_s", pushed_s - self._began_s[ranks]),
            ("samples", share),
            ("reports", 1),
            ("missed", missed),
            ("missed_squares", missed * missed),
        ):
            sums[name][ranks] += more
        self._number[ranks] += 1
        self._began_s[ranks] = pushed_s
        self._at[ranks], self._computes[ranks] = k + 1, False
        at = ranks.tolist()
        self._servers.push_together(list(map(self._job.workers.__getitem__, at)), at, k, share.tolist())

    def _event(self, k: int, ranks: Integers, spent: Spent, loads: Loads, place: int) -> WorkerMessageReceived:
        """One worker's report, as an event of the log."""
        rank = int(ranks[place])
        worker, cpu, memory = self._job.workers[rank], loads[0][place], loads[1][place]
        assert worker.orders is not None
        report = IterationReport(
            number=int(self._number[rank]) + 1,
            generation=worker.orders.generation,
            iteration=k,
            samples=int(self._share[rank]),
            position=task_of(self._orders_before.get(rank) or worker.orders, k).position,
            loss=0.0,
            compute_s=float(spent.compute_s[place]),
            push_s=float(spent.push_s[place]),
            pull_s=float(spent.pull_s[place]),
            waiting_s=float(spent.waiting_s[place]),
            coordination_s=0.0,
            cpu=cpu,
            memory=memory,
        )
        return WorkerMessageReceived(rank=rank, instance=worker.instance, message=report)

    # -- workers leave the cohort

    def settle(self) -> None:
        """Write the arrays back to the workers, and schedule each pending push as a separate event."""
        if not self._any:
            return
        lap, self._lap = self._lap, None
        ranks = np.flatnonzero(self._loaded)
        self._write_back(ranks)
        self._any = False
        self._orders_before.clear()
        self._servers.part()
        if lap is None or lap.next == len(lap.times):
            return
        under_way = zip(lap.times[lap.next :], lap.sequences[lap.next :], lap.ranks[lap.next :].tolist(), strict=True)
        for place, (time_s, sequence, rank) in enumerate(under_way):
            worker = self._job.workers[rank]
            if place:
                self._kernel.at_reserved(time_s, sequence, worker.pushed, worker.attempt)
            else:
                lap.left_over = worker, worker.attempt  # the event of the lap is planned for it

    def _write_back(self, ranks: Integers) -> None:
        """Write their columns back to these workers; they leave the cohort."""
        self._loaded[ranks] = False
        workers, k, applied, version_s = self._job.workers, -1, self._pulled_updates, self._version_s
        names = ("number", "began_s", "ready_s", "compute_from_s", "compute_to_s", *SUMS)
        ready = self._ready_s[ranks]
        arrays = (self._number, self._began_s, None, None, self._finish_s, *self._sums.values())
        columns = [(ready if array is None else array[ranks]).tolist() for array in arrays]
        state = self._at[ranks].tolist(), self._computes[ranks].tolist(), self._laps[ranks].tolist()
        for rank, k, computes, laps, *values in zip(ranks.tolist(), *state, *columns, strict=True):
            worker = workers[rank]
            for name, value in zip(names, values, strict=True):
                setattr(worker, name, value)
            worker.version_s, worker.pulled_updates = version_s, applied
            worker.copy.version, worker.copy.steps = (k if computes else k - 1), applied
            worker.protocol.jump(k, COMPUTE if computes else PULL)
            task = worker.protocol.task
            assert task is not None
            worker.share, worker.position, worker.pieces = task.most, task.position, task.pieces
            worker.attempt += LAP * laps - computes


def _last_plain(worker: SimulatedWorker, attempt: int, iteration: int) -> int:
    """The last iteration that a worker may begin, and continue from, under its orders; -1 if it waits for another one,
    or its orders contain requests.
    """
    orders, protocol = worker.orders, worker.protocol
    if attempt not in (worker.attempt, NO_ATTEMPT) or orders is None or worker.moved_s or not worker.is_alive:
        return -1
    is_there = protocol.phase is PULL and protocol.iteration == iteration and orders.share_from <= iteration
    if not is_there or orders.hold or not _is_plain(orders):
        return -1
    return _last_granted(orders)


def _last_by_newer(worker: SimulatedWorker, iteration: int) -> int:
    """The same for a worker in step, under newer orders that ``receive`` has accepted."""
    protocol = worker.protocol
    protocol.forget_before(iteration - 1)
    orders = protocol.orders
    return _last_granted(orders) if orders is not None and orders.share_from <= iteration else -1


def _last_granted(orders: Orders) -> int:
    ends = orders.share_until if orders.stop_at is None else min(orders.share_until, orders.stop_at - 2)
    return min(ends, orders.watermark - 1)


def _is_plain(orders: Orders) -> bool:
    """Whether orders request nothing between the beginning of an iteration and its report."""
    return (
        orders.cut is None
        and orders.progress_s is None
        and orders.budget_s is None
        and orders.ceiling is None
        and orders.pieces_of is None
        and not (orders.announce or orders.probe_round or orders.refill or orders.ranges)
    )


def _draws_alike(orders: Orders, before: Orders) -> bool:
    """Whether both orders, if plain, assign the same samples for every iteration."""
    return (
        orders.share == before.share
        and orders.offset == before.offset
        and orders.global_batch == before.global_batch
        and orders.origin_position == before.origin_position
        and orders.origin_iteration == before.origin_iteration
        and _is_plain(before)
    )
