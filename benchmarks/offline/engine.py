"""``manage.py bench engine``: events per second through the engine, for 10, 100 and 1,000 workers under each barrier.

A cluster in virtual time follows the engine's orders once, with machines of uneven and varying speed, and all its
messages are recorded. Then the engine alone is timed on the same entries, without decoding and storage, which belong to
the driver. Releases, waits, progress, shares by ``uniform`` and the straggler detector are included; the start of the
job is not. The result is the best of several repeats in CPU time, to exclude other load on the machine.
"""

import argparse
import gc
import heapq
import json
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, asdict, dataclass, field
from functools import partial
from typing import Final, TextIO

from controlplane.core.commands import IssueOrders, NameQuorum
from controlplane.core.engine import Engine
from controlplane.core.events import (
    Assignment,
    Entry,
    Event,
    JobSubmitted,
    NumberedWorkerMessage,
    ServerMessageReceived,
    SlotsAssigned,
    TimePassed,
    WorkerMessageReceived,
)
from controlplane.policies import registry
from controlplane.policies.barriers import draws
from controlplane.protocol.messages import IterationReport, ServerHello, WorkerHello
from controlplane.protocol.orders import Orders
from controlplane.protocol.spec import parse_spec
from controlplane.protocol.worker import Phase, WorkerMachine

WORKERS: Final = (10, 100, 1000)
EVENTS: Final = 30_000
SEED: Final = 7
SLOW_PART, SLOW = 0.05, 3.0
"""This share of the machines takes this many times as long as the others."""

BARS: Final = {"bsp": 80_000, "pbsp": 30_000}
"""Events per second with ``BAR_WORKERS`` workers."""
BAR_WORKERS: Final = 1000
GROWTH_BAR: Final = 1.5
"""An event with 1,000 workers may cost so many times what it costs with 100: caches, not scans. (Ten are another
case for barriers that sample: four of nine others are almost all of them.)"""
FLAT: Final = ("asp", "pbsp", "pssp", "ssp")
"""Barriers whose cost per event must not grow with the number of workers."""


@dataclass(slots=True)
class Machine:
    """One worker of the virtual cluster."""

    rank: int
    pace_s: float
    protocol: WorkerMachine
    until: float = 0.0
    """When it will have finished the iteration that it is in."""
    began: float = 0.0
    number: int = 1
    tried: int = 0


@dataclass(slots=True)
class Cluster:
    """Follows orders without delay, and records the engine's input."""

    engine: Engine
    paces: InitVar[Sequence[float]]
    free: bool
    """Whether workers continue without a quorum."""
    random: random.Random
    now: float = 1_000_000.0
    entries: list[Entry] = field(default_factory=list)
    heap: list[tuple[float, int, str, int]] = field(default_factory=list)
    contributed: dict[int, int] = field(default_factory=dict)
    version: int = 0
    machines: list[Machine] = field(init=False)

    def __post_init__(self, paces: Sequence[float]) -> None:
        self.machines = [
            Machine(rank=rank, pace_s=pace_s, protocol=WorkerMachine(partial(self.say, rank)))
            for rank, pace_s in enumerate(paces)
        ]

    def tell(self, event: Event) -> None:
        """Append an event; the resulting orders arrive immediately."""
        entry = Entry(id=f"{int(self.now)}-{len(self.entries)}", event=event)
        self.entries.append(entry)
        for command in self.engine.handle(entry):
            if isinstance(command, IssueOrders):
                self.receive(self.machines[command.rank], command.orders)
            elif isinstance(command, NameQuorum):
                self.close(command.iteration)

    def say(self, rank: int, build: Callable[[int], NumberedWorkerMessage]) -> None:
        """Append a worker's message."""
        machine = self.machines[rank]
        machine.number += 1
        self.tell(WorkerMessageReceived(rank=rank, instance=f"w{rank}.0.1", message=build(machine.number)))

    def receive(self, machine: Machine, orders: Orders) -> None:
        """A worker has newer orders."""
        protocol, attempt = machine.protocol, machine.protocol.attempt
        protocol.receive(orders)
        machine.tried += protocol.attempt - attempt
        if protocol.phase is Phase.COMPUTE and protocol.is_cut and machine.until > self.now:
            machine.until = self.now
            heapq.heappush(self.heap, (self.now, machine.rank, "end", machine.tried))
        self.go_on(machine)

    def go_on(self, machine: Machine) -> None:
        """A worker begins its next iteration, if it is granted."""
        protocol = machine.protocol
        protocol.next(self.now)
        if protocol.phase is not Phase.PULL or not (self.free or self.version >= protocol.iteration):
            return
        # Do not wait for the share: the benchmark times releases and reports.
        protocol.pulled(-math.inf)
        protocol.next(self.now)
        machine.began, machine.tried = self.now, machine.tried + 1
        machine.until = self.now + 1000 * machine.pace_s * self.random.lognormvariate(0.0, 0.1)
        heapq.heappush(self.heap, (machine.until, machine.rank, "end", machine.tried))
        if protocol.progress_s is not None:
            heapq.heappush(self.heap, (self.now + 1000 * protocol.progress_s, machine.rank, "progress", machine.tried))

    def close(self, iteration: int) -> None:
        """The server has closed an iteration."""
        if self.version <= iteration:
            self.version = iteration + 1
            for machine in self.machines:
                if machine.protocol.orders is not None:
                    self.go_on(machine)

    def run(self, events: int) -> None:
        """Run until the log has this many entries."""
        while len(self.entries) < events:
            due = self.engine.deadline_ms
            if due is not None and (not self.heap or due <= self.heap[0][0]):
                self.now = max(self.now, float(due))
                if not self.engine.needs_heartbeats(self.now):
                    self.tell(TimePassed(is_look=True))
                    continue
                seen = {f"worker:{m.rank}:w{m.rank}.0.1": int(self.now) for m in self.machines}
                self.tell(TimePassed(seen=seen | {"server:0:s0.0.1": int(self.now)}))
                continue
            self.now, rank, what, tried = heapq.heappop(self.heap)
            machine = self.machines[rank]
            if machine.protocol.phase is Phase.COMPUTE and machine.tried == tried:
                (self.end if what == "end" else self.progress)(machine)

    def progress(self, machine: Machine) -> None:
        """A worker reports its progress."""
        protocol, tried = machine.protocol, machine.tried
        assert protocol.task is not None
        done = int(protocol.task.share * (self.now - machine.began) / (machine.until - machine.began + 1e-9))
        protocol.progressed(done)
        at = self.now + 1000 * (protocol.progress_s or 1.0)
        heapq.heappush(self.heap, (at, machine.rank, "progress", tried))

    def end(self, machine: Machine) -> None:
        """A worker has finished an iteration."""
        protocol = machine.protocol
        assert protocol.task is not None
        iteration, share, attempt = protocol.iteration, protocol.task.share, protocol.attempt
        protocol.computed(share)
        if protocol.attempt > attempt:
            return
        protocol.next(self.now)
        protocol.pushed()
        machine.tried += 1
        busy_s = (self.now - machine.began) / 1000
        self.say(machine.rank, partial(_report, iteration=iteration, share=share, busy_s=busy_s))
        self.contributed[iteration] = self.contributed.get(iteration, 0) + 1
        if self.contributed[iteration] == len(self.machines):
            self.close(iteration)
        self.go_on(machine)


def _report(number: int, *, iteration: int, share: int, busy_s: float) -> IterationReport:
    return IterationReport(
        number=number,
        generation=1,
        iteration=iteration,
        samples=share,
        position=0,
        loss=1.0,
        compute_s=busy_s * 0.9,
        push_s=busy_s * 0.05,
        pull_s=busy_s * 0.05,
        waiting_s=0.01,
        coordination_s=0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Measurements for one barrier and number of workers."""

    barrier: str
    workers: int
    events: int
    per_second: float
    """Events per second."""
    reports: int
    ticks: int


def record(barrier: str, workers: int, events: int) -> tuple[list[Entry], int]:
    """The entries of a job, and how many of them are its start."""
    document = {
        "name": "bench",
        "workload": "softmax-regression",
        "workers": workers,
        "batch_size": 64,
        "synchronization": {"barrier": barrier},
        "stop": {"seconds": 1e9},
        "seed": SEED,
    }
    chance = random.Random(SEED)
    slow = max(1, round(workers * SLOW_PART))
    paces = [chance.uniform(0.8, 1.2) * (SLOW if rank < slow else 1.0) for rank in range(workers)]
    free = not registry.resolve("barrier", parse_spec(document).synchronization.barrier).synchronous
    cluster = Cluster(Engine(job=1, resolve=registry.resolve), paces, free, chance)
    cluster.tell(JobSubmitted(spec=parse_spec(document)))
    processes = [Assignment(role="worker", index=rank, agent=1, slot=rank) for rank in range(workers)]
    cluster.tell(SlotsAssigned(assignments=[*processes, Assignment(role="server", index=0, agent=2, slot=0)]))
    hello = ServerHello(number=1, host="127.0.0.1", port=7000, tensor_sizes=[650])
    cluster.tell(ServerMessageReceived(index=0, instance="s0.0.1", message=hello))
    for rank in range(workers):
        said = WorkerHello(number=1, parameter_count=650, sample_count=1437)
        cluster.tell(WorkerMessageReceived(rank=rank, instance=f"w{rank}.0.1", message=said))
    start = len(cluster.entries)
    cluster.run(start + events)
    return cluster.entries, start


def measure(barrier: str, workers: int, *, events: int = EVENTS, repeats: int = 3) -> Row:
    """Events per second, the best of ``repeats``."""
    entries, start = record(barrier, workers, events)
    best_s = min(_replay(entries, start) for _ in range(repeats))
    timed = [entry.event for entry in entries[start:]]
    return Row(
        barrier=barrier,
        workers=workers,
        events=len(timed),
        per_second=len(timed) / best_s,
        reports=sum(isinstance(e, WorkerMessageReceived) and isinstance(e.message, IterationReport) for e in timed),
        ticks=sum(isinstance(event, TimePassed) for event in timed),
    )


def _replay(entries: Sequence[Entry], start: int) -> float:
    """CPU seconds that a fresh engine takes for all entries but the start."""
    engine = Engine(job=1, resolve=registry.resolve)
    for entry in entries[:start]:
        engine.handle(entry)
    # Each repeat draws its samples itself.
    draws.block.cache_clear()
    gc.collect()
    # The garbage collector's scans of this list of entries are not a cost of the engine.
    gc.freeze()
    began = time.process_time()
    for entry in entries[start:]:
        engine.handle(entry)
    took_s = time.process_time() - began
    gc.unfreeze()
    return took_s


def failures(rows: Sequence[Row]) -> list[str]:
    """Missed targets, as sentences."""
    figures = {(row.barrier, row.workers): row.per_second for row in rows}
    missed = []
    for barrier, bar in BARS.items():
        found = figures.get((barrier, BAR_WORKERS))
        if found is not None and found < bar:
            missed.append(f"{barrier}: {found:,.0f} events/s with {BAR_WORKERS:,} workers, at least {bar:,} expected")
    for barrier in FLAT:
        few, many = figures.get((barrier, 100)), figures.get((barrier, 1000))
        if few is not None and many is not None and few / many > GROWTH_BAR:
            missed.append(f"{barrier}: an event costs {few / many:.2f} times as much with 1,000 workers as with 100")
    return missed


def main(arguments: Sequence[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Print the table, or with ``--json`` the figures; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="bench engine", description=__doc__)
    parser.add_argument("--barriers", default=",".join(registry.names("barrier")))
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)))
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    counts = [int(count) for count in options.workers.split(",")]
    rows = []
    for barrier in options.barriers.split(","):
        measured = [measure(barrier, n, events=options.events, repeats=options.repeats) for n in counts]
        rows += measured
        if not options.json:
            figures = "".join(f"{row.per_second:>12,.0f}" for row in measured)
            growth = measured[-2 if len(measured) > 1 else -1].per_second / measured[-1].per_second
            mix = f"{measured[-1].reports / measured[-1].events:.0%} reports, {measured[-1].ticks:,} ticks"
            if barrier == options.barriers.split(",")[0]:
                heads = "".join(f"{count:>12,}" for count in counts)
                print(f"events/s    {heads}   cost of an event, last over the one before; its events", file=out)
            print(f"{barrier:12}{figures}   {growth:.2f} times; {mix}", file=out)
    missed = failures(rows)
    if options.json:
        json.dump({"rows": [asdict(row) for row in rows], "failures": missed}, out)
    for sentence in missed if not options.json else ():
        print(f"missed: {sentence}", file=out)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
