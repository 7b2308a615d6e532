"""Workers that report once per period: the time from a report until the orders arrive."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.live.timing import percentile

FASTEST: Final = 0.8
"""A worker takes between this fraction of the period and all of it; an iteration takes as long as its slowest worker.
"""


@dataclass(slots=True, kw_only=True)
class Stage:
    """Waits of one stretch of time, in seconds, by job."""

    began: float
    waits_s: dict[int, list[float]] = field(default_factory=dict)

    def summary(self, *, workers: int) -> "Waits":
        """The summary so far."""
        return summary(self.waits_s, time.perf_counter() - self.began, workers=workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Summary of one measurement: times from the last report of an iteration to a worker's orders for the next."""

    seconds: float
    reports_per_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    slowest_job_p95_ms: float
    coordination_share: float
    """Mean fraction of an iteration's time."""


class SteadyLoad:
    """A ``Pace`` of one report per period and worker."""

    def __init__(self, period_s: float, seed: int = 7) -> None:
        self.period_s = period_s
        self.over = False
        self._random = random.Random(seed)
        self._last_sent: dict[tuple[int, int], float] = {}
        self._stage = Stage(began=float("inf"))

    async def before_report(self, job: int, rank: int, iteration: int) -> None:
        """See ``Pace``."""
        await asyncio.sleep(self.period_s * self._random.uniform(FASTEST, 1.0))
        self._last_sent[job, iteration] = time.perf_counter()
        self._last_sent.pop((job, iteration - 2), None)

    def answered(self, job: int, rank: int, iteration: int) -> None:
        """See ``Pace``."""
        sent = self._last_sent[job, iteration]
        if sent >= self._stage.began:
            self._stage.waits_s.setdefault(job, []).append(time.perf_counter() - sent)

    async def measure(self, seconds: float, *, workers: int) -> Waits:
        """One measurement, from now on."""
        stage = self.begin()
        await asyncio.sleep(seconds)
        return stage.summary(workers=workers)

    def begin(self) -> Stage:
        """Begin a measurement, which ends when the next one begins."""
        self._stage = Stage(began=time.perf_counter())
        return self._stage


def summary(waits_s: dict[int, list[float]], seconds: float, *, workers: int) -> Waits:
    """Percentiles over all workers, and of the slowest job.

    Raises:
        RuntimeError: if no worker was answered.
    """
    everybody = [wait for of_job in waits_s.values() for wait in of_job]
    if not everybody:
        raise RuntimeError(f"none of {workers} workers was answered in {seconds:.0f} s")
    rate = len(everybody) / seconds
    return Waits(
        seconds=seconds,
        reports_per_s=rate,
        p50_ms=percentile(everybody, 0.5) * 1000,
        p95_ms=percentile(everybody, 0.95) * 1000,
        p99_ms=percentile(everybody, 0.99) * 1000,
        slowest_job_p95_ms=max(percentile(of_job, 0.95) for of_job in waits_s.values()) * 1000,
        coordination_share=sum(everybody) / len(everybody) / (workers / rate),
    )
