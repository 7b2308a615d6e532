"""Many small jobs, each with a report per second, on one Celery process; then on two."""

import asyncio
import time
from argparse import Namespace
from typing import Any, Final

import msgspec
import psutil

from benchmarks.live.cluster import running_cluster
from benchmarks.live.measuring import Target, measure_apart
from benchmarks.live.simulated_jobs import Counted, simulated_jobs
from benchmarks.live.steady_load import SteadyLoad, Waits
from benchmarks.live.usage import Usage, metered
from benchmarks.tables import counted_line, usage_lines, waits_line, waits_title

JOBS: Final = 100
MOST_P95_MS: Final = 1_000.0
"""Target: the slowest job's."""

MOST_STOP_S: Final = 2.0
"""Target: seconds from SIGTERM to a process's end."""

WARM_UP_S: Final = 5.0
PACES_S: Final = (1.0, 0.2)
"""Intervals for one report per second and job, and for five, which may be too many for one process."""


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """The result for one number of Celery processes."""

    processes: int
    jobs: int
    stretches: list[tuple[float, Waits, list[Usage]]]
    """Reports per second and job, the waits, and the resources used."""
    counted: Counted
    stopped_after_s: float | None = None
    """How long one of several processes took to stop while jobs continued."""

    @property
    def failures(self) -> list[str]:
        """Missed targets and lost data, as sentences."""
        found = list(self.counted.losses)
        if self.stopped_after_s is not None and self.stopped_after_s > MOST_STOP_S:
            found.append(
                f"a process took {self.stopped_after_s:.2f} s to end, at most {MOST_STOP_S:.0f} s is the target"
            )
        slowest = self.stretches[0][1].slowest_job_p95_ms
        if slowest > MOST_P95_MS:
            found.append(f"the slowest job's p95 is {slowest:.0f} ms, at most {MOST_P95_MS:.0f} ms is the target")
        return found

    def document(self) -> dict[str, Any]:
        """The result as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document | {"failures": self.failures}


def run(options: Namespace) -> dict[str, Any]:
    """Measure one Celery process, then two."""
    with running_cluster() as cluster:
        runs = [measure_apart(cluster, options)]
        cluster.add_decisions()
        runs.append(measure_apart(cluster, options))
    return {"runs": runs, "failures": [failure for run in runs for failure in run["failures"]]}


def measure(within: str) -> dict[str, Any]:
    """Measure; the environment is that of the running control plane."""
    return asyncio.run(_measure(Target.decode(within))).document()


async def _measure(target: Target) -> Result:
    pace, jobs, stretches = SteadyLoad(PACES_S[0]), target.jobs or JOBS, []
    async with simulated_jobs(target.websockets, pace, jobs=jobs, workers=1) as known:
        for period_s in PACES_S:
            pace.period_s = period_s
            await asyncio.sleep(min(WARM_UP_S, target.seconds))
            async with metered(target.processes) as meter:
                waits = await pace.measure(target.seconds, workers=jobs)
                stretches.append((1 / period_s, waits, meter.usages()))
        deciding = [pid for name, pid in target.processes.items() if name.startswith("decisions")]
        stopped_after_s = await _stop(deciding[-1]) if len(deciding) > 1 else None
        pace.over = True
        await asyncio.sleep(1.0)
    assert known.counted is not None
    return Result(
        processes=len(deciding),
        jobs=jobs,
        stretches=stretches,
        counted=known.counted,
        stopped_after_s=stopped_after_s,
    )


async def _stop(pid: int) -> float:
    """Stop a process with SIGTERM; returns how long that took."""
    process, asked = psutil.Process(pid), time.perf_counter()
    process.terminate()
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    return time.perf_counter() - asked


def table(document: dict[str, Any]) -> str:
    """The results as a table: for one process, then for two."""
    lines = [f"{document['runs'][0]['jobs']} jobs of one worker each; from a report to its orders:", waits_title()]
    for run in document["runs"]:
        of = f"{run['processes']} decision processes" if run["processes"] > 1 else "1 decision process"
        lines += [waits_line(f"{of}, {rate:.0f} a second each", waits) for rate, waits, _ in run["stretches"]]
    for run in document["runs"]:
        lines += [f"{run['processes']} Celery processes for decisions:", *usage_lines(run["stretches"][0][2])]
        if (seconds := run["stopped_after_s"]) is not None:
            lines.append(f"one of them, stopped while all jobs ran, ended after {seconds:.2f} s")
        lines.append(counted_line(f"{run['jobs']} jobs", run["counted"]))
    return "\n".join(lines)
