"""CPU and memory of the control plane's processes and their children during a measurement."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Final

import psutil

from benchmarks.live.timing import Timing

WORKERS: Final = "(workers)"
SAMPLE_S: Final = 1.0
SETTLED: Final = 0.25
"""Fraction of the time that is ignored for the slope of memory, while caches fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources used by one process."""

    name: str
    cpu: float
    """Mean use of one core."""
    memory_mb: float
    """Memory at the end; shared pages are divided among the processes that share them."""
    growth_mb_per_minute: float
    """Slope of a line through the last three quarters of the samples; 0.0 where there are fewer than three."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """Samples processes by name."""

    processes: Mapping[str, psutil.Process]
    cpu_s: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """When, in seconds, and the memory of each, in MB."""

    @property
    def pids(self) -> set[int]:
        """The ids of the sampled processes."""
        return {process.pid for process in self.processes.values()}

    def sample(self) -> None:
        """Take a sample."""
        started = children(self.pids)
        memory = {
            name: sum(map(memory_mb, [process, *started.get(process.pid, ())]))
            for name, process in self.processes.items()
        }
        self.samples.append((time.monotonic() - self.began, memory))

    def usages(self) -> list[Usage]:
        """The usage since the beginning."""
        self.sample()
        took_s = self.samples[-1][0]
        return [
            Usage(
                name=name,
                cpu=(cpu_s(process, self.pids) - self.cpu_s[name]) / took_s,
                memory_mb=self.samples[-1][1][name],
                growth_mb_per_minute=growth([(at, memory[name]) for at, memory in self.samples]),
            )
            for name, process in self.processes.items()
        ]


async def cpu_while(timing: Timing, pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU that each of these processes, and this one, takes while ``timing`` measures."""
    processes = processes_of(pids)
    await timing.started.wait()
    await asyncio.sleep(max(0.0, timing.begin - time.perf_counter()))
    known = {process.pid for process in processes.values()}
    before = {name: cpu_s(process, known) for name, process in processes.items()}
    await asyncio.sleep(max(0.0, timing.begin + timing.seconds - time.perf_counter()))
    return {name: cpu_s(process, known) - before[name] for name, process in processes.items()}


@asynccontextmanager
async def metered(pids: Mapping[str, int]) -> AsyncIterator[Meter]:
    """Sample these processes and this one, which simulates the workers, during the block."""
    meter = Meter(processes=processes_of(pids))
    meter.cpu_s = {name: cpu_s(process, meter.pids) for name, process in meter.processes.items()}
    sampling = asyncio.create_task(_sample(meter))
    try:
        yield meter
    finally:
        sampling.cancel()


def processes_of(pids: Mapping[str, int]) -> dict[str, psutil.Process]:
    """These processes and this one."""
    return {name: psutil.Process(pid) for name, pid in {**pids, WORKERS: os.getpid()}.items()}


def growth(samples: list[tuple[float, float]]) -> float:
    """MB per minute from (seconds, MB) samples."""
    settled = samples[int(len(samples) * SETTLED) :]
    if len(settled) < 3:
        return 0.0
    times, sizes = zip(*settled, strict=True)
    return linear_regression(times, sizes).slope * 60


def cpu_s(process: psutil.Process, known: Collection[int] = ()) -> float:
    """Seconds of CPU that it and the processes that it started have taken so far, in both modes; without ``known``."""
    total = _own_cpu_s(process)
    for child in children(known).get(process.pid, ()):
        with suppress(psutil.Error):
            total += _own_cpu_s(child)
    return total


def _own_cpu_s(process: psutil.Process) -> float:
    """CPU seconds of a process, including its ended children."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def children(known: Collection[int] = ()) -> dict[int, list[psutil.Process]]:
    """The processes that each process has started and that still run, by its id: without ``known`` ones, which are
    counted themselves, and none of this one, which starts what plays the machines.
    """
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        if process.info["ppid"] != os.getpid() and process.pid not in known:
            found.setdefault(process.info["ppid"], []).append(process)
    return found


def memory_mb(process: psutil.Process) -> float:
    """Memory of a process, in MB; pages that several processes share are divided among them. 0.0 if it has ended."""
    try:
        return float(process.memory_full_info().pss) / 2**20
    except psutil.Error:
        return 0.0


async def _sample(meter: Meter) -> None:
    while True:
        meter.sample()
        await asyncio.sleep(SAMPLE_S)
