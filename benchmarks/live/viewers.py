"""The cost of fifty open pages for workers that wait for orders, and how soon a page shows a report.

32 workers of one job run two iterations per second. Rounds without viewers and with fifty page websockets alternate, so
that noise on the machine affects both alike. Then one page of that job is opened in Chromium. If Playwright or Chromium
is missing, that part is skipped with a message.
"""

import asyncio
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from asgiref.sync import sync_to_async
from websockets.asyncio.client import ClientConnection

from benchmarks.live.browsers import Tab, missing, session, watch
from benchmarks.live.cluster import running_cluster
from benchmarks.live.measuring import Target, measure_apart
from benchmarks.live.simulated_jobs import SimulatedJobs, simulated_jobs
from benchmarks.live.steady_load import Stage, SteadyLoad, Waits, summary
from benchmarks.live.timing import open_socket, percentile
from benchmarks.live.usage import Usage, metered
from benchmarks.tables import usage_lines, waits_line, waits_title

WORKERS: Final = 32
PERIOD_S: Final = 0.5
PAGES: Final = 50
TURNS: Final = 6
"""Alternating rounds without and with viewers."""

BATCHING: Final = {"name": "lb-bsp-cpu", "predictor": {"name": "memoryless"}}
"""Decides after each iteration, so that workers wait for orders, and trains no predictor."""

FIGURE: Final = "batch-size"
WARM_UP_ITERATIONS: Final = 10
STARTED_S: Final = 120.0

MOST_RATIO: Final = 1.1
"""Target: p95 of the wait for orders with all pages open, as a multiple of that with none."""

MOST_PIXEL_S: Final = 0.5
"""Target: p95 from an iteration's last report to the frame in which the page shows that iteration."""

MOST_MB_PER_MINUTE: Final = 0.1
"""Target: growth of the page's live heap; more is not flat."""

SLOPE_FROM_S: Final = 1_100.0
"""Memory must be sampled for almost twenty minutes to show its slope: a job's charts fill first."""


class TimedLoad(SteadyLoad):
    """Records when each iteration's last report was sent, by the wall clock, which browsers share."""

    def __init__(self, period_s: float) -> None:
        super().__init__(period_s)
        self.sent_at: dict[int, float] = {}

    async def before_report(self, job: int, rank: int, iteration: int) -> None:
        """See ``Pace``."""
        await super().before_report(job, rank, iteration)
        self.sent_at[iteration] = time.time()


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """All measurements."""

    alone: Waits
    watched: Waits
    ticks_per_s: float
    """Messages that each open page received."""
    usages: list[Usage]
    """With the page open in Chromium."""
    tab: Tab | None = None
    pixel_p50_s: float | None = None
    pixel_p95_s: float | None = None
    left_out: str = ""

    @property
    def ratio(self) -> float:
        """Ratio with pages to without pages."""
        return self.watched.p95_ms / self.alone.p95_ms

    @property
    def failures(self) -> list[str]:
        """Missed targets, as sentences."""
        found = []
        if self.ratio > MOST_RATIO:
            found.append(f"with {PAGES} pages p95 is {self.ratio:.2f} times that with none, at most {MOST_RATIO}")
        if self.pixel_p95_s is not None and self.pixel_p95_s > MOST_PIXEL_S:
            found.append(f"p95 from report to pixel is {self.pixel_p95_s:.2f} s, at most {MOST_PIXEL_S:g} s")
        if self.tab and looked_s(self.tab) >= SLOPE_FROM_S and self.tab.growth_mb_per_minute > MOST_MB_PER_MINUTE:
            found.append(f"the tab grows by {self.tab.growth_mb_per_minute:.2f} MB a minute")
        return found

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        if self.tab:
            document["tab"]["growth_mb_per_minute"] = self.tab.growth_mb_per_minute
        return document | {"ratio": self.ratio, "failures": self.failures}


def looked_s(tab: Tab) -> float:
    """For how long its heap was sampled."""
    return tab.heap_mb[-1][0]


def run(options: Namespace) -> dict[str, Any]:
    """Start a control plane and measure it."""
    with running_cluster() as cluster:
        return measure_apart(cluster, options, tab_s=options.tab_minutes * 60)


def measure(within: str) -> dict[str, Any]:
    """Measure; the environment is that of the running control plane."""
    return asyncio.run(_measure(Target.decode(within))).document()


async def _measure(target: Target) -> Result:
    pace = TimedLoad(PERIOD_S)
    address = urlsplit(target.websockets)._replace(scheme="http").geturl()
    cookie = await sync_to_async(session)()
    async with simulated_jobs(target.websockets, pace, jobs=1, workers=WORKERS, batching=BATCHING) as known:
        await known.until("the first iterations", lambda: len(pace.sent_at) > WARM_UP_ITERATIONS, seconds=STARTED_S)
        result = await _in_turns(target, pace, {"Cookie": f"sessionid={cookie}", "Origin": address})
        if reason := missing():
            result = msgspec.structs.replace(result, left_out=reason)
        else:
            result = await _in_a_browser(target, known, pace, result, address=address, cookie=cookie)
        pace.over = True
        await asyncio.sleep(2 * PERIOD_S)
    return result


async def _in_turns(target: Target, pace: TimedLoad, headers: Mapping[str, str]) -> Result:
    """The waits for orders without viewers, and with fifty open pages."""
    seconds, heard = target.seconds / TURNS, 0
    stages: dict[bool, list[Stage]] = {False: [], True: []}
    async with metered(target.processes) as meter:
        for turn in range(TURNS):
            watched = bool(turn % 2)
            async with pages(target.websockets, headers, PAGES if watched else 0) as ticks:
                stages[watched].append(pace.begin())
                await asyncio.sleep(seconds)
                pace.begin()
                heard += sum(ticks)
        usages = meter.usages()
    alone, watched_waits = (_together(stages[each], target.seconds / 2) for each in (False, True))
    ticks_per_s = heard / PAGES / (target.seconds / 2)
    return Result(alone=alone, watched=watched_waits, ticks_per_s=ticks_per_s, usages=usages)


def _together(stages: Iterable[Stage], seconds: float) -> Waits:
    waits = [wait for stage in stages for of_job in stage.waits_s.values() for wait in of_job]
    return summary({0: waits}, seconds, workers=WORKERS)


async def _in_a_browser(
    target: Target, known: SimulatedJobs, pace: TimedLoad, result: Result, *, address: str, cookie: str
) -> Result:
    """Watch the job's page for as long as memory is sampled."""
    async with metered(target.processes) as meter:
        tab = await watch(address, f"/jobs/{known.jobs[0]}/", figure=FIGURE, cookie=cookie, seconds=target.tab_s)
        usages = meter.usages()
    late = delays(tab.shown, pace.sent_at)
    if not late:
        raise RuntimeError(f"job {known.jobs[0]}: the page showed no new iteration in {target.tab_s:.0f} s")
    return msgspec.structs.replace(
        result,
        tab=tab,
        usages=usages,
        pixel_p50_s=percentile(late, 0.5),
        pixel_p95_s=percentile(late, 0.95),
    )


def delays(shown: Sequence[tuple[float, int]], sent_at: Mapping[int, float]) -> list[float]:
    """From an iteration's last report to the frame that first had it, of those reported since the first frame."""
    found = []
    for (_, before), (at, last) in pairwise(shown):
        sent = [sent_at[iteration] for iteration in range(before + 1, last + 1) if iteration in sent_at]
        found += [at - each for each in sent if each >= shown[0][0]]
    return found


@asynccontextmanager
async def pages(base: str, headers: Mapping[str, str], count: int) -> AsyncIterator[list[int]]:
    """Open ``count`` page websockets; yields how many ticks each has received."""
    ticks = [0] * count

    async def listen(place: int, socket: ClientConnection) -> None:
        async for _ in socket:
            ticks[place] += 1

    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(await open_socket(f"{base}/ws/pages", headers)) for _ in ticks]
        listening = [asyncio.create_task(listen(target, socket)) for target, socket in enumerate(sockets)]
        try:
            yield ticks
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)


def table(document: dict[str, Any]) -> str:
    """The results as a table."""
    lines = [
        f"{WORKERS} workers at {1 / PERIOD_S:.0f} iterations/s; from the last report of an iteration to orders:",
        waits_title(),
        waits_line("no page is open", document["alone"]),
        waits_line(f"{PAGES} pages are open", document["watched"]),
        f"p95 is {document['ratio']:.2f} times (target: {MOST_RATIO});"
        f" each page receives {document['ticks_per_s']:.1f} ticks/s",
    ]
    if tab := document["tab"]:
        heap = [size for _, size in tab["heap_mb"]]
        lines += [
            f"from an iteration's last report to its pixel: p50 {document['pixel_p50_s']:.2f} s,"
            f" p95 {document['pixel_p95_s']:.2f} s (target: {MOST_PIXEL_S:g} s)",
            f"the tab's live heap over {tab['heap_mb'][-1][0]:.0f} s: {heap[0]:.1f} to {heap[-1]:.1f} MB,"
            f" {tab['growth_mb_per_minute']:+.2f} MB/min (target from {SLOPE_FROM_S:.0f} s on: {MOST_MB_PER_MINUTE})",
        ]
    else:
        lines.append(f"without a browser: {document['left_out']}")
    return "\n".join([*lines, *usage_lines(document["usages"])])
