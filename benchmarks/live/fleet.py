"""Many workers on one control plane, each reporting at a steady rate: latency of answers, and resources used."""

import asyncio
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from typing import Any, Final, TypeVar

import msgspec

from benchmarks.live.cluster import running_cluster
from benchmarks.live.load_processes import LoadProcess, Stretch, load_processes, parts_of
from benchmarks.live.measuring import Target, measure_apart
from benchmarks.live.simulated_jobs import MOST_SLOTS, Counted
from benchmarks.live.steady_load import Waits, summary
from benchmarks.live.usage import WORKERS, Meter, Usage, metered
from benchmarks.tables import counted_line, usage_lines, waits_line, waits_title

Found = TypeVar("Found")

MOST_P95_MS: Final = 250.0
"""Target: from the last report of an iteration to the orders of one worker."""

LARGE: Final = 3_000
MOST_P95_MS_LARGE: Final = 1_000.0
"""Target: the same, with more than ``LARGE`` workers."""

MOST_SHARE: Final = 0.005
"""Target: part of an iteration of a second that goes into coordination, with up to 96 workers."""

SHARE_WORKERS: Final = 96
LEAST_RATE: Final = 0.75
"""Target: reports per second that are answered, as a fraction of the rate. Waits at their target take a fifth of an
iteration.
"""

SIZED: Final = (1_000, 1.0)
"""Workers and reports per second of each, for which the control plane has bars."""

MOST_CPU: Final = 0.4
"""Target: of a core, all processes of the control plane."""

MOST_MEMORY_MB: Final = 250.0
"""Target: all processes of the control plane; pages that they share are divided among them."""

FLAT_MB_PER_MINUTE: Final = 1.0
"""Bar of ``--slope``: a process that grows more slowly than this is flat, as far as ten minutes can tell."""

MOST_PER_JOB: Final = 100
BATCHING: Final = {"name": "lb-bsp-cpu", "predictor": {"name": "narx", "samples": 20}}
"""The default, but first trained after 20 iterations instead of 500: before measuring, since that loads torch."""

WARM_UP_S: Final = 5.0
BEYOND_S: Final = 15.0
BEYOND_FACTOR: Final = 1.5
KEPT_UP: Final = 0.9
"""A fleet of which less than this fraction of reports is answered at its rate is beyond the limit."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """All measurements."""

    workers: int
    jobs: int
    machines: int
    hz: float = 1.0
    """Reports of each worker per second."""
    relayed: bool = False
    waits: Waits
    usages: list[Usage]
    """Usage of the control plane."""
    load: list[Usage]
    """Usage of the processes that simulate the machines, with their relays."""
    counted: Counted
    unanswered_jobs: int = 0
    """Jobs without an answer to any worker."""
    beyond: list[tuple[float, Waits]] = []
    """Further measurements at higher rates per worker, until the control plane could not keep up."""
    slope: bool = False

    @property
    def cpu(self) -> float:
        """Of one core, the whole control plane."""
        return sum(usage.cpu for usage in self.usages)

    @property
    def memory_mb(self) -> float:
        """Of the whole control plane at the end."""
        return sum(usage.memory_mb for usage in self.usages)

    @property
    def failures(self) -> list[str]:
        """Missed targets and lost data, as sentences."""
        found, bar_ms = list(self.counted.losses), most_p95_ms(self.workers)
        if self.unanswered_jobs:
            found.append(f"{self.unanswered_jobs} of {self.jobs} jobs were not answered")
        if self.waits.p95_ms > bar_ms:
            found.append(f"p95 is {self.waits.p95_ms:.0f} ms, at most {bar_ms:.0f} ms is the target")
        if (rate := self.waits.reports_per_s / (self.workers * self.hz)) < LEAST_RATE:
            found.append(f"{rate:.2f} of the pace's reports were answered, at least {LEAST_RATE} is the target")
        if self.workers <= SHARE_WORKERS and self.hz == 1.0 and self.waits.coordination_share > MOST_SHARE:
            found.append(
                f"coordination takes {self.waits.coordination_share:.2%}, at most {MOST_SHARE:.1%} is the target"
            )
        if (self.workers, self.hz) == SIZED:
            if self.cpu > MOST_CPU:
                found.append(f"the control plane takes {self.cpu:.0%} of a core, at most {MOST_CPU:.0%} is the target")
            if self.memory_mb > MOST_MEMORY_MB:
                found.append(
                    f"the control plane takes {self.memory_mb:.0f} MB, at most {MOST_MEMORY_MB:.0f} MB is the target"
                )
        for usage in self.usages if self.slope else ():
            if usage.growth_mb_per_minute > FLAT_MB_PER_MINUTE:
                found.append(f"{usage.name} grows by {usage.growth_mb_per_minute:.2f} MB a minute")
        return found

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document | {"cpu": self.cpu, "memory_mb": self.memory_mb, "failures": self.failures}


def most_p95_ms(workers: int) -> float:
    """The bar for a fleet of that size."""
    return MOST_P95_MS_LARGE if workers > LARGE else MOST_P95_MS


def run(options: Namespace) -> dict[str, Any]:
    """Start a control plane and measure it."""
    with running_cluster() as cluster:
        for _ in range(1, options.webs):
            cluster.add_web()
        for _ in range(1, options.deciders):
            cluster.add_decisions()
        return measure_apart(cluster, options)


def measure(within: str) -> dict[str, Any]:
    """Measure; the environment is that of the running control plane."""
    return asyncio.run(_measure(Target.decode(within))).document()


async def _measure(target: Target) -> Result:
    jobs = target.jobs or ceil(target.workers / MOST_PER_JOB)
    each = ceil(target.workers / jobs)
    machines = target.machines or ceil(jobs * each / MOST_SLOTS)
    parts = parts_of(
        bases=[target.websockets, *target.more_websockets],
        jobs=jobs,
        workers=each,
        machines=machines,
        period_s=1 / target.hz,
        relayed=target.relayed,
        batching=BATCHING,
    )
    with load_processes(parts) as processes:
        fleet = Fleet(processes)
        await fleet.start()
        await fleet.measure(target.hz, max(WARM_UP_S, 1 / target.hz))
        played = {f"load-{number}": load.process.pid for number, load in enumerate(processes)}
        async with metered(target.processes | played) as meter:
            stretches = await fleet.measure(target.hz, target.seconds)
            usages, load = _usages(meter, target.processes)
        beyond: list[tuple[float, Waits]] = []
        hz = target.hz
        while target.beyond and (not beyond or keeps_up(beyond[-1], jobs * each)):
            hz *= BEYOND_FACTOR
            await fleet.measure(hz, 1 / hz)
            beyond.append((hz, together(await fleet.measure(hz, BEYOND_S), workers=jobs * each)[0]))
        counted = await fleet.stop()
    waits, unanswered_jobs = together(stretches, workers=jobs * each)
    return Result(
        workers=jobs * each,
        jobs=jobs,
        machines=machines,
        hz=target.hz,
        relayed=target.relayed,
        waits=waits,
        usages=usages,
        load=load,
        counted=counted,
        unanswered_jobs=unanswered_jobs,
        beyond=beyond,
        slope=target.slope,
    )


def _usages(meter: Meter, plane: Mapping[str, int]) -> tuple[list[Usage], list[Usage]]:
    """Usage of the control plane and of the processes that simulate machines, without this process."""
    usages = [usage for usage in meter.usages() if usage.name != WORKERS]
    return [each for each in usages if each.name in plane], [each for each in usages if each.name not in plane]


class Fleet:
    """All processes that simulate machines; commands go to all of them."""

    def __init__(self, processes: Sequence[LoadProcess]) -> None:
        self._processes = processes
        self._threads = ThreadPoolExecutor(len(processes))

    async def start(self) -> None:
        """Wait until all jobs train."""
        await self._all(LoadProcess.await_start)

    async def measure(self, hz: float, seconds: float) -> list[Stretch]:
        """A stretch at that pace."""
        return await self._all(partial(LoadProcess.measure, period_s=1 / hz, seconds=seconds))

    async def stop(self) -> Counted:
        """Stop all jobs, and count their rows."""
        counts = await self._all(LoadProcess.stop)
        return Counted(
            reports_sent=sum(each.reports_sent for each in counts),
            report_rows=sum(each.report_rows for each in counts),
            decision_rows=sum(each.decision_rows for each in counts),
            copied_after_s=max(each.copied_after_s for each in counts),
        )

    async def _all(self, ask: Callable[[LoadProcess], Found]) -> list[Found]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(self._threads, ask, each) for each in self._processes))


def together(stretches: Sequence[Stretch], *, workers: int) -> tuple[Waits, int]:
    """The waits of all processes over the same time, and how many jobs were not answered."""
    waits_s = {job: waits for stretch in stretches for job, waits in stretch.waits_s.items()}
    answered = {job: waits for job, waits in waits_s.items() if waits}
    return summary(answered, max(each.seconds for each in stretches), workers=workers), len(waits_s) - len(answered)


def keeps_up(stretch: tuple[float, Waits], workers: int) -> bool:
    """Whether the fleet was answered in time, and so could keep its pace."""
    rate, waits = stretch
    return waits.p95_ms <= most_p95_ms(workers) and waits.reports_per_s >= KEPT_UP * rate * workers


def table(document: dict[str, Any]) -> str:
    """The results as a table."""
    workers, waits, relayed = document["workers"], document["waits"], document["relayed"]
    lines = [
        f"{workers:,} workers in {document['jobs']} jobs on {document['machines']} machines{', relayed' * relayed},"
        f" {document['hz']:g} reports per second each, {waits['seconds']:.0f} s;",
        "from the last report of an iteration to each worker's orders for the next:",
        waits_title(),
        waits_line(f"{workers:,} workers", waits),
        *(waits_line(f"beyond: {rate:.1f} a second each", further) for rate, further in document["beyond"]),
        f"coordination is {waits['coordination_share']:.3%} of an iteration (target with up to 96 workers: 0.5 %)",
        *usage_lines(document["usages"]),
        f"  all of it: {document['cpu']:.1%} of a core, {document['memory_mb']:.0f} MB"
        f" (targets with 1,000 workers: {MOST_CPU:.0%}, {MOST_MEMORY_MB:.0f} MB)",
        "processes that simulate the machines:",
        *usage_lines(document["load"]),
        counted_line(f"{workers:,} workers", document["counted"]),
    ]
    return "\n".join(lines)
