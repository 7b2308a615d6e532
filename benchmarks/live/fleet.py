"""Many workers on one control plane, each reporting once per second: how soon they are answered, and at what cost."""

import asyncio
from argparse import Namespace
from math import ceil
from typing import Any, Final

import msgspec

from benchmarks.live.cluster import running_cluster
from benchmarks.live.measuring import Target, measure_apart
from benchmarks.live.simulated_jobs import Counted, simulated_jobs
from benchmarks.live.steady_load import SteadyLoad, Waits
from benchmarks.live.usage import WORKERS, Usage, metered
from benchmarks.tables import counted_line, usage_lines, waits_line, waits_title

MOST_P95_MS: Final = 250.0
"""Bar: from the last report of an iteration to the orders of one worker."""

MOST_SHARE: Final = 0.005
"""Bar: part of an iteration of a second that goes into coordination, with up to 96 workers."""

SHARE_WORKERS: Final = 96
FLAT_MB_PER_MINUTE: Final = 1.0
"""Bar of ``--slope``: a process that grows more slowly than this is flat, as far as ten minutes can tell."""

MOST_PER_JOB: Final = 100
BATCHING: Final = {"name": "lb-bsp-cpu", "predictor": {"name": "narx", "samples": 20}}
"""The default, but first trained after 20 iterations instead of 500: before measuring, since that loads torch."""

TRAINED_S: Final = 300.0
WARM_UP_S: Final = 5.0
BEYOND_S: Final = 15.0
BEYOND_FACTOR: Final = 1.5
KEPT_UP: Final = 0.9
"""A fleet that gets less than this part of the reports through that it would send at its pace is beyond the limit."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """Everything that was measured."""

    workers: int
    jobs: int
    waits: Waits
    usages: list[Usage]
    counted: Counted
    beyond: list[tuple[float, Waits]] = []
    """Further stretches at so many reports per second and worker, until it could not keep up."""
    slope: bool = False

    @property
    def failures(self) -> list[str]:
        """What missed its bar, or was lost."""
        found = list(self.counted.losses)
        if self.waits.p95_ms > MOST_P95_MS:
            found.append(f"p95 is {self.waits.p95_ms:.0f} ms, at most {MOST_P95_MS:.0f} ms is the bar")
        if self.workers <= SHARE_WORKERS and self.waits.coordination_share > MOST_SHARE:
            found.append(f"coordination takes {self.waits.coordination_share:.2%}, at most {MOST_SHARE:.1%} is the bar")
        for usage in self.usages if self.slope else ():
            if usage.name != WORKERS and usage.growth_mb_per_minute > FLAT_MB_PER_MINUTE:
                found.append(f"{usage.name} grows by {usage.growth_mb_per_minute:.2f} MB a minute")
        return found

    def document(self) -> dict[str, Any]:
        """For scripts."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document | {"failures": self.failures}


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
    pace = SteadyLoad(1.0)
    beyond: list[tuple[float, Waits]] = []
    jobs = target.jobs or ceil(target.workers / MOST_PER_JOB)
    each = ceil(target.workers / jobs)
    async with simulated_jobs(
        target.websockets, pace, jobs=jobs, workers=each, batching=BATCHING, also=target.more_websockets
    ) as known:
        await known.until("the training of the predictors", known.adopted, seconds=TRAINED_S)
        await asyncio.sleep(WARM_UP_S)
        async with metered(target.processes) as meter:
            waits = await pace.measure(target.seconds, workers=jobs * each)
            usages = meter.usages()
        while target.beyond and (not beyond or keeps_up(beyond[-1], jobs * each)):
            pace.period_s /= BEYOND_FACTOR
            await asyncio.sleep(1.0 / BEYOND_FACTOR)
            beyond.append((1 / pace.period_s, await pace.measure(BEYOND_S, workers=jobs * each)))
        pace.over = True
        await asyncio.sleep(1.0)
    assert known.counted is not None
    return Result(
        workers=jobs * each,
        jobs=jobs,
        waits=waits,
        usages=usages,
        counted=known.counted,
        beyond=beyond,
        slope=target.slope,
    )


def keeps_up(stretch: tuple[float, Waits], workers: int) -> bool:
    """Whether the fleet was answered in time, and so could keep its pace."""
    rate, waits = stretch
    return waits.p95_ms <= MOST_P95_MS and waits.reports_per_s >= KEPT_UP * rate * workers


def table(document: dict[str, Any]) -> str:
    """The figures, for people."""
    workers, waits = document["workers"], document["waits"]
    lines = [
        f"{workers:,} workers in {document['jobs']} jobs, a report per second each, {waits['seconds']:.0f} s;",
        "from the last report of an iteration to each worker's orders for the next:",
        waits_title(),
        waits_line(f"{workers:,} workers", waits),
        *(waits_line(f"beyond: {rate:.1f} a second each", further) for rate, further in document["beyond"]),
        f"coordination is {waits['coordination_share']:.3%} of an iteration (bar with up to 96 workers: 0.5 %)",
        *usage_lines(document["usages"]),
        counted_line(f"{workers:,} workers", document["counted"]),
    ]
    return "\n".join(lines)
