"""Jobs of a bench, all of whose workers live in this process: from their submission to the count of their rows."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from math import ceil
from secrets import token_hex
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db.models import Sum

from benchmarks.live.load_agent import LoadAgent, Pace
from benchmarks.live.relaying import running_relay
from controlplane.core.events import StopRequested
from controlplane.core.states import JOB_OVER
from controlplane.fleet.services import token_create, token_redeem
from controlplane.jobs.models import Decision, Job
from controlplane.jobs.services import job_submit
from controlplane.protocol.spec import parse_spec
from controlplane.runtime import log, names
from controlplane.runtime.redis import shared
from controlplane.telemetry.models import ReportBatch

MOST_SLOTS: Final = 50
"""Limit per machine: each change sends an agent all its orders."""

START_AT_ONCE: Final = 100
"""Workers. If more start at once, this process cannot send the heartbeats of its machines in time."""

STARTED_S: Final = 600.0
COPIED_S: Final = 300.0
LOOK_S: Final = 0.1

DEFAULT: Final = {"name": "lb-bsp-cpu"}
POOL: Final = "pool"
"""The label that keeps jobs to the machines of their process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was sent, and what arrived in the database."""

    reports_sent: int
    report_rows: int
    decision_rows: int
    copied_after_s: float
    """How long after the end of the jobs the last row was there."""

    @property
    def losses(self) -> list[str]:
        """A sentence if reports are missing or duplicated."""
        if self.report_rows == self.reports_sent:
            return []
        return [f"{self.reports_sent} reports were sent, {self.report_rows} rows were written"]


@dataclass(slots=True, kw_only=True)
class SimulatedJobs:
    """Jobs that run, and the machines that run them."""

    jobs: list[int]
    machines: list[LoadAgent]
    running: list["asyncio.Task[None]"]
    counted: Counted | None = field(default=None)
    """Once it is over."""

    @property
    def relays(self) -> dict[str, int]:
        """Process ids of the machines' relays, by name."""
        relays = [machine.relay for machine in self.machines if machine.relay is not None]
        return {f"relay-{number}": relay.pid for number, relay in enumerate(relays)}

    async def until(self, what: str, holds: Any, *, seconds: float) -> None:
        """Wait until the synchronous ``holds`` does.

        Raises:
            RuntimeError: if it does not in time, or a machine ended by an error.
        """
        deadline = time.perf_counter() + seconds
        while not await sync_to_async(holds)():
            for machine in self.running:
                if machine.done():
                    machine.result()
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{what} took longer than {seconds:.0f} s")
            await asyncio.sleep(LOOK_S)

    def all_run(self) -> bool:
        """Whether every job runs.

        Raises:
            RuntimeError: if one is over.
        """
        states = list(Job.objects.filter(pk__in=self.jobs).values_list("state", "reason"))
        if over := [(state, reason) for state, reason in states if state in JOB_OVER]:
            state, reason = over[0]
            raise RuntimeError(f"{len(over)} of {len(states)} jobs are {state} ({reason}), expected all of them to run")
        return all(state == "running" for state, _ in states)

    def adopted(self) -> bool:
        """Whether every job's predictor was trained and is in use."""
        adopted = Decision.objects.filter(job_id__in=self.jobs, kind="adopt-predictor")
        return adopted.values("job_id").distinct().count() == len(self.jobs)


@asynccontextmanager
async def simulated_jobs(
    base: str,
    pace: Pace,
    *,
    jobs: int,
    workers: int,
    batching: Mapping[str, Any] = DEFAULT,
    also: Sequence[str] = (),
    relayed: bool = False,
    machines: int = 0,
    pool: str = "",
) -> AsyncIterator[SimulatedJobs]:
    """``jobs`` jobs with ``workers`` workers each, all running; at the end they are stopped and their rows counted.

    Machines are at ``base``, and in turn at the web processes ``also`` there; ``relayed``: each with a relay. So many
    ``machines``, or as few as have all slots. Jobs and machines with a ``pool`` keep to one another.
    """
    count = machines or ceil(jobs * workers / MOST_SLOTS)
    labels = {POOL: pool} if pool else {}
    with ExitStack() as relays:
        joined = await sync_to_async(_machines)(
            [base, *also],
            pace,
            count,
            slots=ceil(jobs * workers / count),
            servers=ceil(jobs / count),
            labels=labels,
            relays=relays if relayed else None,
        )
        async with _running_jobs(joined, jobs=jobs, workers=workers, batching=batching, labels=labels) as known:
            yield known


@asynccontextmanager
async def _running_jobs(
    machines: list[LoadAgent], *, jobs: int, workers: int, batching: Mapping[str, Any], labels: Mapping[str, str]
) -> AsyncIterator[SimulatedJobs]:
    running = [asyncio.create_task(machine.run(until_over=True)) for machine in machines]
    try:
        known = SimulatedJobs(jobs=[], machines=machines, running=running)
        at_once = max(1, START_AT_ONCE // workers)
        for number in range(1, jobs + 1):
            known.jobs.append(await sync_to_async(submit)(workers, {"batching": dict(batching)}, labels=labels))
            if number % at_once == 0 or number == jobs:
                await known.until(f"the start of {number} jobs", known.all_run, seconds=STARTED_S)
        yield known
        known.counted = await _end(known)
    finally:
        for machine in running:
            machine.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _machines(
    bases: Sequence[str],
    pace: Pace,
    count: int,
    *,
    slots: int,
    servers: int,
    labels: Mapping[str, str],
    relays: ExitStack | None,
) -> list[LoadAgent]:
    made = []
    for number in range(count):
        credential = join(f"bench-{number}-{token_hex(4)}", labels=labels)  # each run has machines of its own
        base = bases[number % len(bases)]
        relay = None if relays is None else relays.enter_context(running_relay(base, credential))
        made.append(LoadAgent(base, credential, slots=slots, server_slots=servers, pace=pace, relay=relay))
    return made


def join(name: str, *, labels: Mapping[str, str] | None = None) -> str:
    """The credential of a machine that joins."""
    token, _ = token_create(labels=labels or {})
    return token_redeem(token=token, name=name).credential


def submit(
    workers: int, synchronization: Mapping[str, Any], *, servers: int = 1, labels: Mapping[str, str] | None = None
) -> int:
    """A job that continues until it is stopped; its number."""
    user, _ = User.objects.get_or_create(username="bench")
    document = {
        "name": f"bench-{workers}",
        "workload": "softmax-regression",
        "workers": workers,
        "servers": servers,
        "batch_size": 64,
        "synchronization": dict(synchronization),
        "stop": {"iterations": 10_000_000},
        "labels": dict(labels or {}),
    }
    job = job_submit(document=document, user=user).job
    log.start_log(job.pk, parse_spec(job.spec))
    return job.pk


async def _end(known: SimulatedJobs) -> Counted:
    """Stop the jobs, wait until ingest has copied their logs completely, and count."""
    for job in known.jobs:
        await sync_to_async(log.append_event)(job, StopRequested(actor="bench"))
    stopped = time.perf_counter()
    await asyncio.gather(*known.running)
    await known.until("copying the logs", lambda: _forgotten(known.jobs), seconds=COPIED_S)
    copied_after_s = time.perf_counter() - stopped
    stored = ReportBatch.objects.filter(job_id__in=known.jobs)
    return Counted(
        reports_sent=sum(sum(machine.reports_sent.values()) for machine in known.machines),
        report_rows=(await stored.aaggregate(reports=Sum("reports")))["reports"] or 0,
        decision_rows=await Decision.objects.filter(job_id__in=known.jobs).acount(),
        copied_after_s=copied_after_s,
    )


def _forgotten(jobs: list[int]) -> bool:
    live = shared().smembers(names.LIVE_JOBS)
    return not any(str(job).encode() in live for job in jobs)
