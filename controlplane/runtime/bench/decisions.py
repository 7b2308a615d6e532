"""From a report to orders: the full path against bare echo, in one run on one machine.

The full path is everything that production has: uvicorn and the gateway with authentication, Redis with its
append-only file, Celery, the engine with LB-BSP, and ingest into the database, whose rows are counted afterwards.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import uvloop
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from controlplane.core.events import StopRequested
from controlplane.core.states import JOB_OVER
from controlplane.fleet.services import token_create, token_redeem
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.services import job_submit
from controlplane.protocol.codec import encode
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.bench.clients import Figures, Timing, figures, measure_echo
from controlplane.runtime.bench.fleet import Machine, report
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import Report

MOST_LATENCY: Final = 4.0
"""Bar: p50 of one worker's round trip, as a multiple of bare echo's."""

LEAST_THROUGHPUT: Final = 0.3
"""Bar: messages per second with 64 workers, as a share of bare echo's."""

CROWD: Final = 64
COPIED_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One measurement of the full path, and what the database had of it afterwards."""

    figures: Figures
    reports_sent: int
    report_rows: int
    decision_rows: int
    copied_after_s: float
    """How long after the last report its row was there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that was measured, and the ratios that the bars are about."""

    echo_one: Figures
    echo_crowd: Figures
    path_one: Path
    path_crowd: Path

    @property
    def latency_ratio(self) -> float:
        """One worker's median round trip against echo's."""
        return self.path_one.figures.p50_ms / self.echo_one.p50_ms

    @property
    def throughput_ratio(self) -> float:
        """Messages per second of 64 workers against echo's."""
        return self.path_crowd.figures.messages_per_s / self.echo_crowd.messages_per_s

    @property
    def failures(self) -> list[str]:
        """What missed its bar, or was lost."""
        found = []
        if self.latency_ratio > MOST_LATENCY:
            found.append(f"round trip is {self.latency_ratio:.2f} times bare echo's, at most {MOST_LATENCY} is the bar")
        if self.throughput_ratio < LEAST_THROUGHPUT:
            found.append(
                f"{self.throughput_ratio:.2f} of bare echo's messages/s, at least {LEAST_THROUGHPUT} is the bar"
            )
        for path in (self.path_one, self.path_crowd):
            if path.report_rows != path.reports_sent:
                found.append(f"{path.reports_sent} reports were sent, {path.report_rows} rows were written")
        return found

    def document(self) -> dict[str, Any]:
        """For scripts."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        ratios = {"latency_ratio": self.latency_ratio, "throughput_ratio": self.throughput_ratio}
        return document | ratios | {"failures": self.failures}


def measure(base: str, echo: str, *, seconds: float) -> Result:
    """Measure all four, one after the other; the environment is that of the running control plane."""
    return uvloop.run(_measure(base, echo, seconds))


async def _measure(base: str, echo: str, seconds: float) -> Result:
    def payload(number: int) -> bytes:
        return encode(report(number, number))

    return Result(
        echo_one=await measure_echo(echo, payload, connections=1, seconds=seconds),
        path_one=await _measure_path(base, workers=1, seconds=seconds),
        echo_crowd=await measure_echo(echo, payload, connections=CROWD, seconds=seconds),
        path_crowd=await _measure_path(base, workers=CROWD, seconds=seconds),
    )


async def _measure_path(base: str, *, workers: int, seconds: float) -> Path:
    timing = Timing(seconds=seconds, begin=float("inf"))
    credential = await sync_to_async(_join)(f"bench-{workers}")
    machine = Machine(base, credential, slots=workers, timing=timing)
    running = asyncio.create_task(machine.run())
    job = await sync_to_async(_submit)(workers)
    await _until_running(job, running)
    timing.start()
    while not timing.over:
        await asyncio.sleep(0.1)
    stopped = time.perf_counter()
    await sync_to_async(log.append_event)(job, StopRequested(actor="bench"))
    await running
    rows, decisions = await _rows_once_copied(job)
    return Path(
        figures=figures(workers, timing),
        reports_sent=sum(machine.reports_sent.values()),
        report_rows=rows,
        decision_rows=decisions,
        copied_after_s=time.perf_counter() - stopped,
    )


def _join(name: str) -> str:
    token, _ = token_create(labels={})
    return token_redeem(token=token, name=name).credential


def _submit(workers: int) -> int:
    user, _ = User.objects.get_or_create(username="bench")
    document = {
        "name": f"bench-{workers}",
        "workload": "softmax-regression",
        "workers": workers,
        "servers": 1,
        "batch_size": 64,
        "synchronization": {"batching": "lb-bsp-cpu"},
        "stop": {"iterations": 10_000_000},
    }
    job = job_submit(document=document, user=user).job
    log.start_log(job.pk, parse_spec(job.spec))
    return job.pk


async def _until_running(job: int, machine: asyncio.Task[None]) -> None:
    deadline = time.perf_counter() + COPIED_S
    while (state := await Job.objects.values_list("state", flat=True).aget(pk=job)) != "running":
        if machine.done():
            machine.result()
        if state in JOB_OVER or time.perf_counter() > deadline:
            raise RuntimeError(f"job {job}: is {state}, expected it to run")
        await asyncio.sleep(0.05)


async def _rows_once_copied(job: int) -> tuple[int, int]:
    """Report and decision rows, once ingest has copied the whole log of the job, which is over, and forgot it."""
    deadline, client = time.perf_counter() + COPIED_S, shared()
    while await sync_to_async(client.sismember)(names.LIVE_JOBS, str(job)):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"job {job}: its log was not copied within {COPIED_S:.0f} s")
        await asyncio.sleep(0.02)
    return await Report.objects.filter(job_id=job).acount(), await Decision.objects.filter(job_id=job).acount()
